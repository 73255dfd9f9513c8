// client.c: one process of the measuring client.
//
// It holds many WebSocket connections in one thread (epoll), and does what it is told by lines on stdin
// (`command key=value …`, values percent-encoded); it answers each with one line of JSON on stdout.
// The sequence of commands, and every judgement about the figures, is the business of ../swarm.js and ../workloads.js.
//
// Why C: on two cores the client takes its processor time from the server it measures. Here a delivery costs one
// read(2), a look at the frame's header and at the marker within its payload, and nothing is allocated.
//
// What it verifies. Each published payload carries a marker "#T<time><step><sequence>#": 13 hexadecimal digits of
// CLOCK_MONOTONIC in microseconds (the time the message was due, not the time it was written: open loop), 2 of the
// step, 8 of the sequence number. Of each connection the count and the sum of sequence numbers are kept and compared
// with what its room was sent, so that a server that drops, repeats or mixes up messages can't win.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GROUPS = 4, MAX_STEPS = 4, MAX_PAYLOAD = 16384, MARKER = 26, BUCKETS = 2048, READ_BYTES = 1 << 18, REFUSING = 2 };
// The wheel of those that are to return: slots of 10 ms, 80 s in all.
enum { SLOT_US = 10000, SLOTS = 8000, SECONDS = 1800, FIRST_DELAY_US = 1000000, MAX_DELAY_US = 30000000 };
enum state { CLOSED, CONNECTING, UPGRADING, JOINING, OPEN };

struct connection {
  int fd;
  uint8_t state, group, step, paused, moved, visit; // moved: dialled since the run began; visit: see go_on_visiting
  uint32_t index;                            // its place in the group; its room is index % rooms
  uint32_t received;
  uint64_t sum; // of sequence numbers, this run
  uint8_t *partial;
  uint32_t partial_bytes, partial_capacity;
  uint8_t *unsent; // what the socket would not take yet
  uint32_t unsent_bytes, unsent_offset;
  // the return
  struct connection *next; // in its slot
  uint32_t after_ms, attempts; // the delay that the server has named, + 1; attempts that have failed
  uint64_t left_us;
};

struct group {
  struct connection **members;
  uint32_t count, capacity, open;
  char room[128];
  uint32_t rooms;
  uint32_t marker_offset; // where the last marker was found in its message
  // the opening
  uint32_t opening_id, wanted, started, in_flight, failed, concurrency, sources, per_second;
  uint32_t closed_from, closed_to; // members that may have to be dialled again, at their places
  int opening, paused;
  uint64_t opened_at_us, deadline_us;
  double cpu_before;
  // the run
  enum { NOTHING, RUN, ECHO, CYCLE, VISITS } mode;
  int going; // a run has begun; before, it is armed: it counts already, for others may begin first
  uint32_t run_id, step, payload_bytes;
  uint64_t start_us, window_end_us, give_up_us, drain_us, last_us, max_us;
  double interval_us;
  uint64_t messages, next_message; // of all processes; the next one to look at
  uint32_t process, processes, publishers;
  uint64_t expected, received, in_window, stray, lost, sent, errors, frames_before, bytes_before, reads_before;
  uint32_t histogram[BUCKETS];
  // a run whose connections may move meanwhile
  int moving;
  uint32_t *seen; // deliveries of each message
  // the cycle
  uint64_t cycles_wanted, cycles_started, cycles_done;
  // the visits
  uint64_t visits_wanted, visits_started, visits_joined, visits_done;
  uint32_t next_visitor, rooms_visited;
  char visited[128], join[256], joined[64], leave[256], gone[64];
  // the return
  int returning, obeys, until_settled;
  uint32_t return_id, away, back, left, retries, left_by_second[SECONDS], back_by_second[SECONDS];
  uint64_t returning_us, return_by_us, slot, last_left_us, last_back_us;
  struct connection *slots[SLOTS];
};

static struct {
  char host[64], path[512], headers[1024], ready[256], before[512], after[256], ping[32], pong[32];
  struct { char wait[256], send[1024]; } steps[MAX_STEPS];
  int port, step_count, binary;
} profile;

static struct group groups[MAX_GROUPS];
static int poller;
static uint64_t frames, bytes, reads;
static uint8_t read_buffer[READ_BYTES + 65536 * 2];
static uint64_t random_state = 88172645463325252ull;
static int source_offset;

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
static uint32_t random_below(uint32_t n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)(random_state % n);
}

// ---- histogram: exact below 128 us, then 64 buckets an octave (an error below 1.6 %); ../../lib/latency.js reads it
static int bucket_of(uint64_t us) {
  if (us < 128) return (int)us;
  int shift = 57 - __builtin_clzll(us);
  int bucket = 128 + (shift - 1) * 64 + (int)((us >> shift) & 63);
  return bucket < BUCKETS ? bucket : BUCKETS - 1;
}
static void print_histogram(const uint32_t *histogram) {
  int first = 1;
  printf(",\"histogram\":\"");
  for (int i = 0; i < BUCKETS; i++)
    if (histogram[i]) {
      printf(first ? "%d:%u" : ",%d:%u", i, histogram[i]);
      first = 0;
    }
  printf("\"");
}

// ---- commands' arguments
static char *arguments[64];
static int argument_count;
static void decode(char *s) {
  char *o = s;
  for (; *s; s++) {
    if (*s == '%' && s[1] && s[2]) {
      char hex[3] = {s[1], s[2], 0};
      *o++ = (char)strtol(hex, NULL, 16);
      s += 2;
    } else *o++ = *s;
  }
  *o = 0;
}
static const char *text_of(const char *key, const char *fallback) {
  size_t n = strlen(key);
  for (int i = 0; i < argument_count; i++)
    if (!strncmp(arguments[i], key, n) && arguments[i][n] == '=') return arguments[i] + n + 1;
  return fallback;
}
static double number_of(const char *key, double fallback) {
  const char *text = text_of(key, NULL);
  return text ? atof(text) : fallback;
}
static void copy_text(char *to, size_t size, const char *key) { snprintf(to, size, "%s", text_of(key, "")); }

// ---- sending
static void watch(struct connection *c) {
  uint32_t events = (c->paused && c->state == OPEN ? 0 : EPOLLIN) | (c->unsent_bytes || c->state == CONNECTING ? EPOLLOUT : 0);
  struct epoll_event e = {.events = events, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}
static void write_all(struct connection *c, const uint8_t *data, size_t n) {
  ssize_t written = 0;
  if (!c->unsent_bytes) {
    written = send(c->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written == (ssize_t)n) return;
    if (written < 0) written = 0; // a dead socket shows itself when it is read
  }
  size_t left = n - written;
  uint32_t held = c->unsent_bytes - c->unsent_offset;
  if (held > 8u << 20) return; // the server has not read for a very long time: what it never got will be missed
  uint8_t *grown = malloc(held + left);
  if (held) memcpy(grown, c->unsent + c->unsent_offset, held);
  memcpy(grown + held, data + written, left);
  free(c->unsent);
  c->unsent = grown;
  c->unsent_bytes = held + left;
  c->unsent_offset = 0;
  watch(c);
}
static void write_unsent(struct connection *c) {
  ssize_t written = send(c->fd, c->unsent + c->unsent_offset, c->unsent_bytes - c->unsent_offset, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written > 0) c->unsent_offset += written;
  if (c->unsent_offset < c->unsent_bytes) return;
  free(c->unsent);
  c->unsent = NULL;
  c->unsent_bytes = c->unsent_offset = 0;
  watch(c);
}
static void send_frame(struct connection *c, int opcode, const char *text, size_t n) {
  static uint8_t frame[MAX_PAYLOAD + 4096];
  static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};
  size_t h = 0;
  if (n > MAX_PAYLOAD + 4000) return;
  frame[h++] = 0x80 | opcode;
  if (n < 126) frame[h++] = 0x80 | n;
  else {
    frame[h++] = 0x80 | 126;
    frame[h++] = n >> 8;
    frame[h++] = n & 255;
  }
  memcpy(frame + h, mask, 4);
  h += 4;
  for (size_t i = 0; i < n; i++) frame[h + i] = (uint8_t)text[i] ^ mask[i & 3];
  write_all(c, frame, h + n);
}
// Copies `text` with $ROOM replaced by the connection's room, and $LEN and a digit by the byte of its length and so much.
static size_t with_room(char *to, size_t size, const char *text, struct connection *c) {
  struct group *g = &groups[c->group];
  size_t n = 0;
  while (*text && n + 200 < size) {
    if (!strncmp(text, "$ROOM", 5)) {
      n += g->rooms > 1 ? snprintf(to + n, size - n, "%s%u", g->room, c->index % g->rooms) : snprintf(to + n, size - n, "%s", g->room);
      text += 5;
    } else if (!strncmp(text, "$LEN", 4) && text[4] >= '0' && text[4] <= '9') {
      char room[200];
      int length = g->rooms > 1 ? snprintf(room, sizeof room, "%s%u", g->room, c->index % g->rooms) : snprintf(room, sizeof room, "%s", g->room);
      to[n++] = (char)(length + text[4] - '0');
      text += 5;
    } else to[n++] = *text++;
  }
  to[n] = 0;
  return n;
}
static void publish(struct connection *c, uint64_t due_us, uint32_t sequence) {
  static char message[MAX_PAYLOAD + 2048];
  struct group *g = &groups[c->group];
  size_t n = with_room(message, 1024, profile.before, c), start = n;
  n += sprintf(message + n, "{\"m\":\"#T%013llx%02x%08x#\",\"user\":\"ada\",\"text\":\"", (unsigned long long)due_us, g->step, sequence);
  while (n - start + 2 < g->payload_bytes) message[n++] = 'x';
  message[n++] = '"';
  message[n++] = '}';
  n += with_room(message + n, 512, profile.after, c);
  send_frame(c, 1, message, n);
}

// ---- the return
static uint32_t second_of(struct group *g) {
  uint64_t second = (now_us() - g->returning_us) / 1000000;
  return second < SECONDS ? (uint32_t)second : SECONDS - 1;
}
static void dial_after(struct connection *c, uint64_t delay_us) {
  struct group *g = &groups[c->group];
  if (delay_us > (SLOTS - 1) * (uint64_t)SLOT_US) delay_us = (SLOTS - 1) * (uint64_t)SLOT_US;
  uint64_t slot = (now_us() + delay_us) / SLOT_US;
  if (slot < g->slot) slot = g->slot;
  c->next = g->slots[slot % SLOTS];
  g->slots[slot % SLOTS] = c;
}
// The rules of docs/protocol.md: the delay that the server has named, else full jitter.
static void will_return(struct connection *c, int was_open) {
  struct group *g = &groups[c->group];
  if (was_open) {
    g->open--;
    g->away++;
    g->left++;
    g->left_by_second[second_of(g)]++;
    c->left_us = now_us();
    g->last_left_us = c->left_us - g->returning_us;
    c->attempts = 0;
    if (g->obeys && c->after_ms) {
      dial_after(c, (c->after_ms - 1) * 1000ull);
      return;
    }
  } else {
    g->in_flight--;
    g->retries++;
    c->attempts++;
  }
  uint64_t longest = (uint64_t)FIRST_DELAY_US << (c->attempts < 5 ? c->attempts : 5);
  dial_after(c, g->obeys ? random_below(longest < MAX_DELAY_US ? longest : MAX_DELAY_US) : was_open ? 0 : random_below(FIRST_DELAY_US));
}

// ---- connections
static void connection_ended(struct connection *c) {
  struct group *g = &groups[c->group];
  if (c->state == CLOSED) return;
  if (g->returning) will_return(c, c->state == OPEN);
  else if (c->state == OPEN) {
    g->open--;
    g->lost++;
  } else {
    g->in_flight--;
    g->failed++;
    if (g->mode == CYCLE) g->cycles_done++;
  }
  c->state = CLOSED;
  close(c->fd);
  free(c->partial);
  free(c->unsent);
  c->partial = c->unsent = NULL;
  c->partial_bytes = c->partial_capacity = c->unsent_bytes = c->unsent_offset = 0;
  c->fd = -1;
}
// Ends it from our side, with a reset: no TIME_WAIT, so that ports can be used again at once.
static void hang_up(struct connection *c) {
  struct group *g = &groups[c->group];
  if (c->state == CLOSED) return;
  int was_open = c->state == OPEN;
  uint64_t failed = g->failed;
  connection_ended(c);
  if (was_open) g->lost--;
  else g->failed = failed;
}
static void dial(struct connection *c) {
  struct group *g = &groups[c->group];
  c->step = 0;
  c->received = 0;
  c->sum = 0;
  c->paused = g->paused;
  c->moved = 1;
  c->visit = 0;
  c->after_ms = 0;
  c->state = CONNECTING;
  g->in_flight++;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) {
    connection_ended(c);
    return;
  }
  int one = 1;
  struct linger reset = {1, 0};
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  struct sockaddr_in a = {.sin_family = AF_INET};
  if (g->sources) { // each source address has its own 28,000 ephemeral ports; the port is chosen at connect
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    a.sin_addr.s_addr = htonl(0x7f000002u + (c->index + source_offset) % g->sources);
    if (bind(c->fd, (void *)&a, sizeof a) < 0) {
      connection_ended(c);
      return;
    }
  }
  a.sin_port = htons(profile.port);
  inet_aton(profile.host, &a.sin_addr);
  if (connect(c->fd, (void *)&a, sizeof a) < 0 && errno != EINPROGRESS) {
    connection_ended(c);
    return;
  }
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
}
static void became_ready(struct connection *c) {
  struct group *g = &groups[c->group];
  g->in_flight--;
  c->state = OPEN;
  g->open++;
  if (g->returning) {
    uint64_t now = now_us(), us = now - c->left_us;
    g->away--;
    g->back++;
    g->back_by_second[second_of(g)]++;
    g->last_back_us = now - g->returning_us;
    if (g->mode != RUN) { // else both belong to the run
      g->histogram[bucket_of(us)]++;
      if (us > g->max_us) g->max_us = us;
    }
  }
  if (g->mode == CYCLE) {
    g->cycles_done++;
    // Every other one leaves in an orderly way (close frame, then FIN), the rest are cut off.
    if (g->cycles_done & 1) {
      struct linger orderly = {0, 0};
      setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &orderly, sizeof orderly);
      send_frame(c, 8, "\x03\xe8", 2);
    }
    hang_up(c);
    return;
  }
  if (c->paused) watch(c);
}
// Goes on with the profile's steps; `message` is what just arrived, NULL right after the upgrade.
static void go_on_joining(struct connection *c, const char *message, size_t n) {
  char text[2048];
  for (;;) {
    if (c->step < profile.step_count) {
      const char *wait = profile.steps[c->step].wait;
      if (*wait) {
        if (!message || !memmem(message, n, wait, strlen(wait))) return;
        message = NULL;
      }
      size_t length = with_room(text, sizeof text, profile.steps[c->step].send, c);
      send_frame(c, profile.binary ? 2 : 1, text, length);
      c->step++;
      continue;
    }
    if (!*profile.ready || (message && memmem(message, n, profile.ready, strlen(profile.ready)))) became_ready(c);
    return;
  }
}
static int8_t hex_digit[256];
static uint64_t hex(const uint8_t *p, int n) {
  uint64_t v = 0;
  while (n--) v = v << 4 | hex_digit[*p++];
  return v;
}
static void delivered(struct connection *c, struct group *g, const uint8_t *marker, uint64_t now) {
  if (hex(marker + 15, 2) != g->step || !g->mode) {
    g->stray++;
    return;
  }
  uint64_t due = hex(marker + 2, 13);
  uint32_t sequence = hex(marker + 17, 8);
  uint64_t us = now > due ? now - due : 0;
  g->histogram[bucket_of(us)]++;
  if (us > g->max_us) g->max_us = us;
  if (g->moving && sequence < g->messages) g->seen[sequence]++;
  if (now <= g->window_end_us) g->in_window++;
  g->last_us = now;
  g->received++;
  c->received++;
  c->sum += sequence;
  if (g->mode == ECHO && now < g->window_end_us) publish(c, now, 0);
}
// Copies a visit's text with $ROOM replaced by the room that this connection visits.
static void send_visit(struct connection *c, const char *text) {
  char message[512];
  struct group *g = &groups[c->group];
  const char *room = strstr(text, "$ROOM");
  if (!room) return;
  size_t n = snprintf(message, sizeof message, "%.*s%s%u%s", (int)(room - text), text, g->visited, c->index % g->rooms_visited, room + 5);
  send_frame(c, 1, message, n < sizeof message ? n : sizeof message - 1);
}
// Is it an answer to a visit? A joined visitor leaves at once.
static int on_visit(struct connection *c, const char *p, size_t n, uint64_t now) {
  struct group *g = &groups[c->group];
  if (c->visit == 1 && memmem(p, n, g->joined, strlen(g->joined))) {
    uint64_t us = now > c->left_us ? now - c->left_us : 0;
    g->histogram[bucket_of(us)]++;
    if (us > g->max_us) g->max_us = us;
    g->visits_joined++;
    c->visit = 2;
    send_visit(c, g->leave);
    return 1;
  }
  if (c->visit == 2 && memmem(p, n, g->gone, strlen(g->gone))) {
    g->visits_done++;
    c->visit = 0;
    return 1;
  }
  return 0;
}
static void on_message(struct connection *c, const uint8_t *p, size_t n, uint64_t now) {
  struct group *g = &groups[c->group];
  if (c->state == JOINING) {
    go_on_joining(c, (const char *)p, n);
    if (c->state == JOINING && memmem(p, n, "\"type\":\"error\"", 14)) { // a real client would join again, too
      if (g->failed + g->retries == 0) fprintf(stderr, "join refused: %.*s\n", (int)n, p);
      connection_ended(c);
    }
    if (c->state == CLOSED) return;
  }
  if (c->visit && on_visit(c, (const char *)p, n, now)) return;
  const uint8_t *end = p + n, *marker = p + g->marker_offset;
  if (n < g->marker_offset + MARKER || marker[0] != '#' || marker[1] != 'T' || marker[MARKER - 1] != '#') {
    marker = n < MARKER ? NULL : memmem(p, n, "#T", 2);
    if (!marker) {
      const char *delay = memmem(p, n, "\"reconnectAfterMs\":", 19); // what follows it is a brace
      if (memmem(p, n, "\"type\":\"error\"", 14) && g->errors++ == 0) fprintf(stderr, "message refused: %.*s\n", (int)n, p);
      if (delay) c->after_ms = 1 + (uint32_t)strtoul(delay + 19, NULL, 10);
      if (profile.binary && n == 1 && !*p) send_frame(c, 2, "", 1);
      if (*profile.ping && n == strlen(profile.ping) && !memcmp(p, profile.ping, n)) send_frame(c, 1, profile.pong, strlen(profile.pong));
      return;
    }
    g->marker_offset = marker - p;
  }
  // Some servers join several messages in one frame: look on where there is room for another.
  while (marker && end - marker >= MARKER) {
    if (marker[MARKER - 1] == '#') delivered(c, g, marker, now);
    marker += MARKER;
    if ((size_t)(end - marker) < g->payload_bytes) break;
    marker = memmem(marker, end - marker, "#T", 2);
  }
}
static void on_readable(struct connection *c) {
  if (c->partial_bytes) memcpy(read_buffer, c->partial, c->partial_bytes);
  ssize_t got = read(c->fd, read_buffer + c->partial_bytes, READ_BYTES);
  if (got <= 0) {
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    connection_ended(c);
    return;
  }
  reads++;
  bytes += got;
  uint8_t *p = read_buffer;
  size_t n = c->partial_bytes + got;
  uint64_t now = now_us();
  if (c->state == UPGRADING) {
    uint8_t *end = memmem(p, n, "\r\n\r\n", 4);
    if (!end && n > 8192) {
      connection_ended(c);
      return;
    }
    if (end) {
      // The accept value belongs to the one key that all connections send (RFC 6455 1.3 has the pair).
      if (memcmp(p + 8, " 101", 4) || !memmem(p, end - p, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", 28)) {
        if (groups[c->group].failed == 0) fprintf(stderr, "handshake refused: %.*s\n", (int)(strcspn((char *)p, "\r\n")), p);
        connection_ended(c);
        return;
      }
      n -= end + 4 - p;
      p = end + 4;
      c->state = JOINING;
      go_on_joining(c, NULL, 0);
      if (c->state == CLOSED) return;
    }
  }
  if (c->state >= JOINING) {
    while (n >= 2) {
      size_t length = p[1] & 127, header = 2;
      if (length == 126) {
        if (n < 4) break;
        length = (size_t)p[2] << 8 | p[3];
        header = 4;
      } else if (length == 127) {
        if (n < 10) break;
        length = 0;
        for (int i = 2; i < 10; i++) length = length << 8 | p[i];
        header = 10;
      }
      if (n < header + length) break;
      frames++;
      int opcode = p[0] & 15;
      if (opcode <= 2) on_message(c, p + header, length, now);
      else if (opcode == 9) send_frame(c, 10, (char *)p + header, length);
      else if (opcode == 8) {
        if (!groups[c->group].returning) {
          connection_ended(c);
          return;
        }
        // As real clients do: the server gets its close frame back, and ends the TCP connection.
        struct linger orderly = {0, 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &orderly, sizeof orderly);
        send_frame(c, 8, (char *)p + header, length);
      }
      if (c->state == CLOSED) return;
      p += header + length;
      n -= header + length;
    }
  }
  if (n > sizeof read_buffer - READ_BYTES) { // a frame larger than any that is measured here
    connection_ended(c);
    return;
  }
  if (n > c->partial_capacity) {
    c->partial_capacity = n + 256;
    c->partial = realloc(c->partial, c->partial_capacity);
  }
  if (n) memcpy(c->partial, p, n);
  else if (c->partial) { // idle connections hold nothing
    free(c->partial);
    c->partial = NULL;
    c->partial_capacity = 0;
  }
  c->partial_bytes = n;
}
static void on_event(struct connection *c, uint32_t events) {
  if (c->state == CLOSED) return;
  if (c->state == CONNECTING) {
    if (events & (EPOLLERR | EPOLLHUP)) connection_ended(c);
    else if (events & EPOLLOUT) {
      char request[2048];
      int n = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n",
                       profile.path, profile.host, profile.port, profile.headers);
      c->state = UPGRADING;
      write_all(c, (uint8_t *)request, n);
      watch(c);
    }
    return;
  }
  if (events & EPOLLOUT && c->unsent_bytes) write_unsent(c);
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    if (c->paused && c->state == OPEN && !(events & EPOLLIN)) connection_ended(c);
    else on_readable(c);
  }
}

// ---- commands
static void reply_open(struct group *g) {
  g->opening = 0;
  printf("{\"id\":%u,\"open\":%u,\"failed\":%u,\"seconds\":%.6f,\"cpuSeconds\":%.6f}\n", g->opening_id, g->open, g->failed,
         (now_us() - g->opened_at_us) / 1e6, cpu_seconds() - g->cpu_before);
  fflush(stdout);
}
static void go_on_opening(struct group *g, uint64_t now) {
  uint64_t allowed = g->per_second ? 1 + (now - g->opened_at_us) * g->per_second / 1000000 : ~0ull;
  while (g->started < g->wanted && g->in_flight < g->concurrency && g->started < allowed) {
    if (g->closed_from < g->closed_to) {
      struct connection *known = g->members[g->closed_from++];
      if (known->state != CLOSED) continue;
      g->started++;
      dial(known);
      continue;
    }
    struct connection *c = calloc(1, sizeof *c);
    c->group = g - groups;
    c->index = g->count;
    if (g->count == g->capacity) {
      g->capacity = g->capacity * 2 + 1024;
      g->members = realloc(g->members, g->capacity * sizeof *g->members);
    }
    g->members[g->count++] = c;
    g->started++;
    dial(c);
  }
  if (now > g->deadline_us)
    for (uint32_t i = 0; i < g->count; i++)
      if (g->members[i]->state != OPEN && g->members[i]->state != CLOSED) connection_ended(g->members[i]);
  if ((g->started == g->wanted && g->in_flight == 0) || now > g->deadline_us) reply_open(g);
}
static void go_on_cycling(struct group *g, uint64_t now) {
  for (uint32_t i = 0; i < g->count && g->cycles_started < g->cycles_wanted && now < g->give_up_us; i++)
    if (g->members[i]->state == CLOSED && g->in_flight < g->concurrency) {
      g->cycles_started++;
      dial(g->members[i]);
    }
  if (g->in_flight == 0 || now > g->give_up_us) {
    if (g->cycles_started < g->cycles_wanted && now <= g->give_up_us) return;
    g->mode = NOTHING;
    printf("{\"id\":%u,\"cycles\":%llu,\"failed\":%u,\"seconds\":%.6f,\"cpuSeconds\":%.6f}\n", g->run_id, (unsigned long long)g->cycles_done,
           g->failed, (now_us() - g->start_us) / 1e6, cpu_seconds() - g->cpu_before);
    fflush(stdout);
  }
}
// Members join another room in turn, at a steady rate, and leave it again.
static void go_on_visiting(struct group *g, uint64_t now) {
  for (uint32_t looked = 0; g->visits_started < g->visits_wanted && looked < g->count; looked++) {
    uint64_t due = g->start_us + (uint64_t)(g->visits_started * g->interval_us);
    if (due > now) break;
    struct connection *c = g->members[g->next_visitor++ % g->count];
    if (c->state != OPEN || c->visit) continue;
    g->visits_started++;
    c->visit = 1;
    c->left_us = due;
    send_visit(c, g->join);
  }
  if (g->visits_done < g->visits_wanted && now < g->give_up_us) return;
  g->mode = NOTHING;
  printf("{\"id\":%u,\"started\":%llu,\"joined\":%llu,\"left\":%llu,\"lost\":%llu,\"maxUs\":%llu,\"seconds\":%.6f,\"cpuSeconds\":%.6f", g->run_id,
         (unsigned long long)g->visits_started, (unsigned long long)g->visits_joined, (unsigned long long)g->visits_done, (unsigned long long)g->lost,
         (unsigned long long)g->max_us, (now - g->start_us) / 1e6, cpu_seconds() - g->cpu_before);
  print_histogram(g->histogram);
  printf("}\n");
  fflush(stdout);
}
static void print_seconds(const char *name, const uint32_t *counts, uint32_t seconds) {
  printf(",\"%s\":[", name);
  for (uint32_t i = 0; i <= seconds; i++) printf(i ? ",%u" : "%u", counts[i]);
  printf("]");
}
static void go_on_returning(struct group *g, uint64_t now) {
  for (; g->slot <= now / SLOT_US; g->slot++) {
    struct connection *c = g->slots[g->slot % SLOTS];
    g->slots[g->slot % SLOTS] = NULL;
    for (struct connection *next; c; c = next) {
      next = c->next;
      dial(c);
    }
  }
  // A connection may be closed again after its return.
  if ((g->until_settled || g->left < g->wanted || g->open < g->wanted) && now < g->return_by_us) return;
  printf("{\"id\":%u,\"open\":%u,\"left\":%u,\"back\":%u,\"retries\":%u,\"lastLeftUs\":%llu,\"lastBackUs\":%llu,\"maxUs\":%llu,\"cpuSeconds\":%.6f",
         g->return_id, g->open, g->left, g->back, g->retries, (unsigned long long)g->last_left_us, (unsigned long long)g->last_back_us,
         (unsigned long long)g->max_us, cpu_seconds() - g->cpu_before);
  print_seconds("leftBySecond", g->left_by_second, second_of(g));
  print_seconds("backBySecond", g->back_by_second, second_of(g));
  print_histogram(g->histogram);
  printf("}\n");
  fflush(stdout);
  g->returning = 0;
  memset(g->slots, 0, sizeof g->slots);
}
// How many of the messages 0 … messages-1 went to this room, and the sum of their numbers.
static void due_of_room(struct group *g, uint64_t room, uint64_t *count, uint64_t *sum) {
  *count = room < g->messages ? (g->messages - 1 - room) / g->rooms + 1 : 0;
  *sum = *count ? *count * room + (uint64_t)g->rooms * (*count * (*count - 1) / 2) : 0;
}
static void begin(struct group *g, int mode) {
  g->mode = mode;
  g->run_id = number_of("id", 0);
  g->step = (uint32_t)number_of("step", 0) & 255;
  g->payload_bytes = number_of("payload", 100);
  if (g->payload_bytes > MAX_PAYLOAD) g->payload_bytes = MAX_PAYLOAD;
  memset(g->histogram, 0, sizeof g->histogram);
  g->moving = 0;
  g->received = g->in_window = g->stray = g->lost = g->sent = g->errors = g->last_us = g->max_us = g->expected = 0;
  g->next_message = 0;
  g->cpu_before = cpu_seconds();
  g->frames_before = frames;
  g->bytes_before = bytes;
  g->reads_before = reads;
  for (uint32_t i = 0; i < g->count; i++) {
    struct connection *c = g->members[i];
    c->received = c->sum = 0;
    c->moved = c->state != OPEN; // one that is on its way may miss the first messages
  }
}
static void arm_run(struct group *g) {
  begin(g, RUN);
  g->going = 0;
  g->window_end_us = ~0ull;
  g->messages = number_of("messages", 0);
  g->interval_us = 1e6 / number_of("perSecond", 1);
  g->drain_us = (uint64_t)number_of("drainMs", 2000) * 1000;
  g->process = (int)number_of("process", -1);
  g->processes = number_of("processes", 1);
  g->publishers = number_of("publishers", 4);
  g->moving = number_of("moving", 0);
  g->seen = realloc(g->seen, (g->messages + 1) * sizeof *g->seen);
  memset(g->seen, 0, (g->messages + 1) * sizeof *g->seen);
  for (uint32_t i = 0; i < g->count; i++) {
    uint64_t count, sum;
    if (g->members[i]->state != OPEN || g->members[i]->paused) continue;
    due_of_room(g, i % g->rooms, &count, &sum);
    g->expected += count;
  }
}
// Message j goes to room j % rooms; processes, and members of the room within a process, take turns.
static void publish_due(struct group *g, uint64_t now) {
  while (g->going && g->next_message < g->messages) {
    uint64_t j = g->next_message, due = g->start_us + (uint64_t)(j * g->interval_us);
    if (due > now) return;
    uint64_t turn = j / g->rooms;
    g->next_message++;
    if (turn % g->processes != g->process) continue;
    uint64_t index = j % g->rooms + g->rooms * ((turn / g->processes) % g->publishers);
    struct connection *c = index < g->count ? g->members[index] : NULL;
    // While connections move, one that stays publishes.
    for (uint64_t other = index; g->moving && c && (c->state != OPEN || c->after_ms) && other < g->count; other += g->rooms) c = g->members[other];
    if (!c || c->state != OPEN) continue; // it will be missed by all its receivers
    publish(c, due, (uint32_t)j);
    g->sent++;
  }
}
// While connections move, a publisher may be closed before the server has its message. So a message that nobody got
// counts as refused, and those that have stayed must have every other one. Answers whether they have. If connections
// only see refusals (REFUSING), a message that nobody has yet must also have its error.
static int count_stayers(struct group *g, uint64_t *refused, uint64_t *moved, uint64_t *wrong) {
  uint64_t count = 0, sum = 0;
  for (uint64_t j = 0; j < g->messages; j++)
    if (g->seen[j]) {
      count++;
      sum += j;
    }
  *refused = g->messages - count;
  *moved = *wrong = g->expected = g->received = 0;
  for (uint32_t i = 0; i < g->count; i++) {
    struct connection *c = g->members[i];
    if (c->moved || c->state != OPEN) {
      ++*moved;
      continue;
    }
    g->expected += count;
    g->received += c->received;
    if (c->received != count || c->sum != sum) ++*wrong;
  }
  return *wrong == 0 && *refused == 0;
}
// If connections only see refusals, a first look that does not visit each of them.
static int may_be_complete(const struct group *g) {
  uint64_t seen = 0;
  for (uint64_t j = 0; j < g->messages; j++) seen += g->seen[j] > 0;
  return g->moving != REFUSING || g->received >= seen * g->open;
}
static void reply_run(struct group *g) {
  uint64_t wrong = 0, refused = 0, moved = 0;
  for (uint32_t i = 0; i < g->count; i++) {
    struct connection *c = g->members[i];
    uint64_t count, sum;
    if (g->moving || c->state != OPEN || c->paused) continue;
    due_of_room(g, i % g->rooms, &count, &sum);
    if (c->received != count || c->sum != sum) wrong++;
  }
  if (g->moving) count_stayers(g, &refused, &moved, &wrong);
  printf("{\"id\":%u,\"open\":%u,\"expected\":%llu,\"received\":%llu,\"inWindow\":%llu,\"wrong\":%llu,\"stray\":%llu,\"lost\":%llu,\"refused\":%llu,\"moved\":%llu,\"errors\":%llu,"
         "\"sent\":%llu,\"lastUs\":%llu,\"maxUs\":%llu,\"frames\":%llu,\"bytes\":%llu,\"reads\":%llu,\"cpuSeconds\":%.6f",
         g->run_id, g->open, (unsigned long long)g->expected, (unsigned long long)g->received, (unsigned long long)g->in_window,
         (unsigned long long)(g->mode == ECHO ? 0 : wrong), (unsigned long long)g->stray, (unsigned long long)g->lost,
         (unsigned long long)refused, (unsigned long long)moved, (unsigned long long)g->errors,
         (unsigned long long)g->sent, (unsigned long long)(g->last_us > g->start_us ? g->last_us - g->start_us : 0),
         (unsigned long long)g->max_us, (unsigned long long)(frames - g->frames_before), (unsigned long long)(bytes - g->bytes_before),
         (unsigned long long)(reads - g->reads_before), cpu_seconds() - g->cpu_before);
  print_histogram(g->histogram);
  printf("}\n");
  fflush(stdout);
  g->mode = NOTHING;
}
static void close_group(struct group *g, uint32_t keep) {
  while (g->count > keep) {
    struct connection *c = g->members[--g->count];
    hang_up(c);
    free(c);
  }
}
static void execute(char *line) {
  argument_count = 0;
  char *save = NULL, *command = strtok_r(line, " \n", &save);
  if (!command) return;
  for (char *a; argument_count < 64 && (a = strtok_r(NULL, " \n", &save));) {
    decode(a);
    arguments[argument_count++] = a;
  }
  unsigned id = number_of("id", 0);
  struct group *g = &groups[(int)number_of("group", 0) % MAX_GROUPS];
  if (!strcmp(command, "profile")) {
    copy_text(profile.host, sizeof profile.host, "host");
    copy_text(profile.path, sizeof profile.path, "path");
    copy_text(profile.headers, sizeof profile.headers, "headers");
    copy_text(profile.ready, sizeof profile.ready, "ready");
    copy_text(profile.before, sizeof profile.before, "before");
    copy_text(profile.after, sizeof profile.after, "after");
    copy_text(profile.ping, sizeof profile.ping, "ping");
    copy_text(profile.pong, sizeof profile.pong, "pong");
    profile.port = number_of("port", 0);
    profile.step_count = number_of("steps", 0);
    profile.binary = number_of("binary", 0);
    source_offset = number_of("sourceOffset", 0);
    if (profile.step_count > MAX_STEPS) profile.step_count = MAX_STEPS;
    for (int i = 0; i < profile.step_count; i++) {
      char key[16];
      sprintf(key, "wait%d", i);
      copy_text(profile.steps[i].wait, sizeof profile.steps[i].wait, key);
      sprintf(key, "send%d", i);
      copy_text(profile.steps[i].send, sizeof profile.steps[i].send, key);
    }
    printf("{\"id\":%u}\n", id);
  } else if (!strcmp(command, "open")) {
    g->opening = 1;
    g->opening_id = id;
    g->wanted = number_of("count", 0);
    g->closed_from = g->closed_to = 0;
    if (number_of("upTo", 0)) { // so many in all, each at its place
      g->wanted = g->wanted > g->open ? g->wanted - g->open : 0;
      g->closed_to = g->count;
    }
    g->started = g->failed = g->in_flight = 0;
    if (g->count == 0) g->lost = 0;
    g->concurrency = number_of("concurrency", 100);
    g->per_second = number_of("perSecond", 0);
    g->sources = number_of("sources", 0);
    g->paused = !number_of("read", 1);
    g->rooms = number_of("rooms", 1);
    copy_text(g->room, sizeof g->room, "room");
    g->opened_at_us = now_us();
    g->deadline_us = g->opened_at_us + (uint64_t)number_of("timeoutMs", 30000) * 1000;
    g->cpu_before = cpu_seconds();
    return;
  } else if (!strcmp(command, "run")) {
    arm_run(g);
    printf("{\"id\":%u}\n", id);
  } else if (!strcmp(command, "go")) {
    g->run_id = id;
    g->going = 1;
    g->start_us = (uint64_t)number_of("startUs", 0);
    g->window_end_us = g->start_us + (uint64_t)(g->messages * g->interval_us);
    g->give_up_us = g->window_end_us + g->drain_us;
    return;
  } else if (!strcmp(command, "echo")) {
    begin(g, ECHO);
    g->start_us = now_us();
    g->window_end_us = g->start_us + (uint64_t)number_of("durationMs", 2000) * 1000;
    g->give_up_us = g->window_end_us + 200000;
    for (uint32_t i = 0; i < g->count; i++)
      if (g->members[i]->state == OPEN) publish(g->members[i], now_us(), 0);
    return;
  } else if (!strcmp(command, "cycle")) {
    begin(g, CYCLE);
    g->start_us = now_us();
    g->give_up_us = g->start_us + (uint64_t)number_of("timeoutMs", 60000) * 1000;
    g->cycles_wanted = number_of("count", 0);
    g->cycles_started = g->cycles_done = 0;
    g->concurrency = number_of("concurrency", 50);
    g->sources = number_of("sources", 0);
    g->rooms = number_of("rooms", 1);
    g->paused = g->failed = g->in_flight = 0;
    copy_text(g->room, sizeof g->room, "room");
    while (g->count < g->concurrency) {
      struct connection *c = calloc(1, sizeof *c);
      c->group = g - groups;
      c->index = g->count;
      if (g->count == g->capacity) {
        g->capacity = g->capacity * 2 + 1024;
        g->members = realloc(g->members, g->capacity * sizeof *g->members);
      }
      g->members[g->count++] = c;
    }
    return;
  } else if (!strcmp(command, "return")) {
    memset(g->histogram, 0, sizeof g->histogram);
    memset(g->left_by_second, 0, sizeof g->left_by_second);
    memset(g->back_by_second, 0, sizeof g->back_by_second);
    memset(g->slots, 0, sizeof g->slots);
    g->returning = 1;
    g->return_id = id;
    g->obeys = number_of("obey", 1);
    g->until_settled = number_of("untilSettled", 0);
    g->wanted = g->open;
    g->away = g->back = g->left = g->retries = g->in_flight = 0;
    g->max_us = g->last_left_us = g->last_back_us = 0;
    g->returning_us = now_us();
    g->slot = g->returning_us / SLOT_US;
    g->return_by_us = g->returning_us + (uint64_t)number_of("timeoutMs", 60000) * 1000;
    g->cpu_before = cpu_seconds();
    return;
  } else if (!strcmp(command, "settle")) { // the return under way ends when all are back
    g->until_settled = 0;
    printf("{\"id\":%u}\n", id);
  } else if (!strcmp(command, "visit")) {
    begin(g, VISITS);
    g->start_us = now_us();
    g->give_up_us = g->start_us + (uint64_t)number_of("timeoutMs", 60000) * 1000;
    g->interval_us = 1e6 / number_of("perSecond", 1);
    g->visits_wanted = number_of("visits", 0);
    g->visits_started = g->visits_joined = g->visits_done = g->next_visitor = 0;
    g->rooms_visited = number_of("rooms", 1);
    copy_text(g->visited, sizeof g->visited, "room");
    copy_text(g->join, sizeof g->join, "join");
    copy_text(g->joined, sizeof g->joined, "joined");
    copy_text(g->leave, sizeof g->leave, "leave");
    copy_text(g->gone, sizeof g->gone, "left");
    return;
  } else if (!strcmp(command, "close")) {
    close_group(g, number_of("keep", 0));
    printf("{\"id\":%u,\"open\":%u}\n", id, g->open);
  } else if (!strcmp(command, "status")) {
    printf("{\"id\":%u,\"open\":%u,\"lost\":%llu,\"cpuSeconds\":%.6f}\n", id, g->open, (unsigned long long)g->lost, cpu_seconds());
  } else if (!strcmp(command, "quit")) exit(0);
  else printf("{\"id\":%u,\"error\":\"unknown command\"}\n", id);
  fflush(stdout);
}
static void on_stdin(void) {
  static char line[65536];
  static size_t held;
  ssize_t got = read(0, line + held, sizeof line - 1 - held);
  if (got <= 0) exit(0); // whoever steers this is gone
  held += got;
  for (;;) {
    char *newline = memchr(line, '\n', held);
    if (!newline) break;
    *newline = 0;
    size_t used = newline + 1 - line;
    char command[65536];
    memcpy(command, line, used);
    memmove(line, line + used, held - used);
    held -= used;
    execute(command);
  }
}

// ---- the loop
static uint64_t work(uint64_t now) { // what is due; answers when to come again
  uint64_t next = now + 1000000;
  for (int i = 0; i < MAX_GROUPS; i++) {
    struct group *g = &groups[i];
    if (g->opening) {
      go_on_opening(g, now);
      uint64_t due = now + (g->per_second ? 1000 : 50000);
      if (due < next) next = due;
    }
    if (g->returning) {
      go_on_returning(g, now);
      if (now + SLOT_US < next) next = now + SLOT_US;
    }
    if (g->mode == RUN && g->going) {
      publish_due(g, now);
      uint64_t refused, moved, wrong;
      if (g->moving && now >= g->window_end_us && g->next_message >= g->messages && may_be_complete(g) && count_stayers(g, &refused, &moved, &wrong) &&
          (g->moving != REFUSING || refused <= g->errors)) reply_run(g);
      else if (!g->moving && now >= g->window_end_us && g->received >= g->expected && g->next_message >= g->messages) reply_run(g);
      else if (now >= g->give_up_us) reply_run(g);
      else {
        uint64_t due = g->next_message < g->messages ? g->start_us + (uint64_t)(g->next_message * g->interval_us) + 1 : now + 2000;
        if (g->processes && g->process >= g->processes && due < now + 2000) due = now + 2000; // does not publish
        if (due < next) next = due;
      }
    } else if (g->mode == ECHO) {
      if (now >= g->give_up_us) reply_run(g);
      else if (g->give_up_us < next) next = g->give_up_us;
    } else if (g->mode == CYCLE) {
      go_on_cycling(g, now);
      if (now + 50000 < next) next = now + 50000;
    } else if (g->mode == VISITS) {
      go_on_visiting(g, now);
      if (now + 1000 < next) next = now + 1000;
    }
  }
  return next;
}
static int wait_for_events(struct epoll_event *events, int n, uint64_t us) {
#ifdef SYS_epoll_pwait2
  static int absent;
  if (!absent) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    int got = syscall(SYS_epoll_pwait2, poller, events, n, &t, NULL, 8);
    if (got >= 0 || errno != ENOSYS) return got;
    absent = 1;
  }
#endif
  return epoll_wait(poller, events, n, us / 1000); // rounds down: better early than late
}
int main(void) {
  signal(SIGPIPE, SIG_IGN);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  random_state ^= (uint64_t)getpid() << 20;
  for (int i = 0; i < 10; i++) hex_digit['0' + i] = i;
  for (int i = 0; i < 6; i++) hex_digit['a' + i] = 10 + i;
  poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event input = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, 0, &input) < 0) {
    perror("stdin must be a pipe");
    return 1;
  }
  struct epoll_event events[256];
  uint64_t now = now_us();
  for (;;) {
    uint64_t next = work(now);
    now = now_us();
    int n = wait_for_events(events, 256, next > now ? next - now : 0);
    int commanded = 0;
    for (int i = 0; i < n; i++) {
      if (events[i].data.ptr) on_event(events[i].data.ptr, events[i].events);
      else commanded = 1; // obeyed after the others: a command may free connections that have events here
      if ((i & 31) == 31) // keeps the sending in time while much arrives
        for (int k = 0; k < MAX_GROUPS; k++)
          if (groups[k].mode == RUN) publish_due(&groups[k], now_us());
    }
    if (commanded) on_stdin();
    now = now_us();
  }
}
