// limit.c: as little as a server can do, in C: the limit that the kernel sets on this machine.
//
// WORKERS processes, each with its own listening socket (SO_REUSEPORT), epoll and one thread. A
// stream of Unix sockets leads from each worker to each other worker. In one turn of its loop a
// worker reads all ready sockets once. Then it joins the new messages of each room and writes them
// to each member with one write(2). Messages are not parsed but recognised by their first bytes.
// There are no limits, no checks beyond those that keep the memory intact, no pings and no Redis.
// So no server can be much faster, and none that people could use would be so simple.
//
// It speaks the profile `plain`. Deliveries have the fields of the other servers' deliveries.
// Environment: PORT, WORKERS.

#define _GNU_SOURCE
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  BACKLOG = 4096,
  MAX_WORKERS = 64,
  MAX_EVENTS = 1024,
  ACCEPTS_PER_TURN = 256,
  READ_BYTES = 256 * 1024,
  /** A message with more bytes ends its connection. */
  MAX_MESSAGE = 128 * 1024,
  /** A member with more unsent bytes is disconnected. */
  MAX_UNSENT = 64 * 1024 * 1024,
  MAX_ROOM_NAME = 255,
  BUCKETS = 16384,
};

typedef struct {
  char *bytes;
  size_t length, capacity;
} Buffer;

typedef struct Membership Membership;

typedef struct {
  uint64_t hash;
  char *name;
  Membership **members;
  uint32_t count, capacity;
  Buffer frames; // of this turn
} Room;

typedef enum { CLIENT, PEER } Kind;

typedef struct {
  int fd;
  uint8_t kind, upgraded, echoes, closing, wantsWrite, isDirty;
  Buffer held;   // an incomplete message
  Buffer unsent; // the kernel did not take these bytes
  size_t sent;   // of `unsent`
  Membership *memberships;
} Connection;

struct Membership {
  Connection *connection;
  Room *room;
  uint32_t index;
  Membership *next; // of the same connection
};

static int poller, listener, peerCount;
static Connection *peers[MAX_WORKERS];
static Room *buckets[BUCKETS];
/** Rooms with new messages, connections that must be closed, and both at the end of the turn. */
static Room **dirty;
static size_t dirtyCount, dirtyCapacity;
static Connection **closing;
static size_t closingCount, closingCapacity;
static char input[READ_BYTES];
/** Sender and time, as other servers add them. */
static char fields[80];
static size_t fieldsLength;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void *grow(void *old, size_t bytes) {
  void *memory = realloc(old, bytes);
  if (memory == NULL) fail("realloc");
  return memory;
}

static void append(Buffer *buffer, const void *bytes, size_t length) {
  if (buffer->length + length > buffer->capacity) {
    size_t capacity = buffer->capacity == 0 ? 512 : buffer->capacity;
    while (capacity < buffer->length + length) capacity *= 2;
    buffer->bytes = grow(buffer->bytes, capacity);
    buffer->capacity = capacity;
  }
  memcpy(buffer->bytes + buffer->length, bytes, length);
  buffer->length += length;
}

static void release(Buffer *buffer) {
  free(buffer->bytes);
  *buffer = (Buffer){0};
}

static void closeLater(Connection *c) {
  if (c->closing) return;
  c->closing = 1;
  if (closingCount == closingCapacity) {
    closingCapacity = closingCapacity == 0 ? 64 : closingCapacity * 2;
    closing = grow(closing, closingCapacity * sizeof *closing);
  }
  closing[closingCount++] = c;
}

static void watch(Connection *c, int wantsWrite) {
  struct epoll_event event = {.events = EPOLLIN | (wantsWrite ? EPOLLOUT : 0), .data.ptr = c};
  c->wantsWrite = wantsWrite;
  if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) < 0) closeLater(c);
}

static void writeTo(Connection *c, const char *bytes, size_t length) {
  if (c->closing) return;
  if (c->unsent.length == 0) {
    ssize_t written = send(c->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written == (ssize_t)length) return;
    if (written < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        closeLater(c);
        return;
      }
      written = 0;
    }
    bytes += written;
    length -= (size_t)written;
  }
  append(&c->unsent, bytes, length);
  if (c->unsent.length > MAX_UNSENT) closeLater(c);
  else if (!c->wantsWrite) watch(c, 1);
}

static void writeUnsent(Connection *c) {
  while (c->sent < c->unsent.length) {
    ssize_t written = send(c->fd, c->unsent.bytes + c->sent, c->unsent.length - c->sent,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) closeLater(c);
      else if (c->sent > c->unsent.length / 2) {
        memmove(c->unsent.bytes, c->unsent.bytes + c->sent, c->unsent.length - c->sent);
        c->unsent.length -= c->sent;
        c->sent = 0;
      }
      return;
    }
    c->sent += (size_t)written;
  }
  release(&c->unsent);
  c->sent = 0;
  watch(c, 0);
}

static Room *roomOf(const char *name, size_t length) {
  uint64_t hash = 14695981039346656037ull; // FNV-1a
  for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 1099511628211ull;
  size_t bucket = hash % BUCKETS;
  for (size_t i = 0; i < BUCKETS; i++, bucket = (bucket + 1) % BUCKETS) {
    Room *room = buckets[bucket];
    if (room == NULL) {
      room = calloc(1, sizeof *room);
      if (room == NULL) fail("calloc");
      room->hash = hash;
      room->name = strndup(name, length);
      return buckets[bucket] = room;
    }
    if (room->hash == hash && strlen(room->name) == length && memcmp(room->name, name, length) == 0)
      return room;
  }
  fprintf(stderr, "more than %d rooms\n", BUCKETS);
  exit(1);
}

static void joinRoom(Connection *c, Room *room) {
  Membership *membership = malloc(sizeof *membership);
  if (membership == NULL) fail("malloc");
  if (room->count == room->capacity) {
    room->capacity = room->capacity == 0 ? 4 : room->capacity * 2;
    room->members = grow(room->members, room->capacity * sizeof *room->members);
  }
  *membership = (Membership){c, room, room->count, c->memberships};
  room->members[room->count++] = membership;
  c->memberships = membership;
}

static void leaveRooms(Connection *c) {
  for (Membership *one = c->memberships; one != NULL;) {
    Room *room = one->room;
    Membership *last = room->members[--room->count], *next = one->next;
    room->members[one->index] = last;
    last->index = one->index;
    free(one);
    one = next;
  }
  c->memberships = NULL;
}

/** Writes the head of an unmasked text frame (RFC 6455 5.2). */
static size_t frameHead(char *head, size_t length) {
  head[0] = (char)0x81;
  if (length < 126) {
    head[1] = (char)length;
    return 2;
  }
  if (length < 65536) {
    head[1] = 126;
    head[2] = (char)(length >> 8);
    head[3] = (char)length;
    return 4;
  }
  head[1] = 127;
  for (int i = 0; i < 8; i++) head[2 + i] = (char)((uint64_t)length >> (56 - 8 * i));
  return 10;
}

/** A frame for the members of a room on this worker. */
static void deliver(Room *room, const char *head, size_t headLength, const char *text,
                    size_t length) {
  if (room->count == 0) return;
  if (room->frames.length == 0) {
    if (dirtyCount == dirtyCapacity) {
      dirtyCapacity = dirtyCapacity == 0 ? 64 : dirtyCapacity * 2;
      dirty = grow(dirty, dirtyCapacity * sizeof *dirty);
    }
    dirty[dirtyCount++] = room;
  }
  append(&room->frames, head, headLength);
  append(&room->frames, text, length);
}

/** {"type":"message","room":"…","data":…}: the delivery is the same text with more fields. */
static void publish(const char *name, size_t nameLength, char *text, size_t length) {
  static char delivery[MAX_MESSAGE + sizeof fields];
  size_t kept = length - 1; // up to the closing brace
  memcpy(delivery, text, kept);
  memcpy(delivery + kept, fields, fieldsLength);
  size_t total = kept + fieldsLength;
  char head[10];
  size_t headLength = frameHead(head, total);
  deliver(roomOf(name, nameLength), head, headLength, delivery, total);
  // To a peer: the size of the frame, the length of the room's name, the name, the frame.
  uint32_t sizes[2] = {(uint32_t)(headLength + total), (uint32_t)nameLength};
  for (int i = 0; i < peerCount; i++) {
    Connection *peer = peers[i];
    append(&peer->held, sizes, sizeof sizes);
    append(&peer->held, name, nameLength);
    append(&peer->held, head, headLength);
    append(&peer->held, delivery, total);
  }
}

static void handleText(Connection *c, char *text, size_t length, Buffer *replies) {
  char head[10];
  if (c->echoes) {
    append(replies, head, frameHead(head, length));
    append(replies, text, length);
    return;
  }
  static const char key[] = "\"room\":\"";
  char *name = memmem(text, length, key, sizeof key - 1);
  if (name == NULL || length < 10) return;
  name += sizeof key - 1;
  char *end = memchr(name, '"', length - (size_t)(name - text));
  if (end == NULL || end - name > MAX_ROOM_NAME) return;
  size_t nameLength = (size_t)(end - name);
  if (text[9] == 'j') { // {"type":"join",…
    char reply[64 + MAX_ROOM_NAME];
    joinRoom(c, roomOf(name, nameLength));
    int size = snprintf(reply, sizeof reply, "{\"type\":\"joined\",\"room\":\"%.*s\"}",
                        (int)nameLength, name);
    append(replies, head, frameHead(head, (size_t)size));
    append(replies, reply, (size_t)size);
  } else {
    publish(name, nameLength, text, length);
  }
}

/** Handles the complete frames of a client. @returns bytes used; -1: close the connection */
static ssize_t handleFrames(Connection *c, char *bytes, size_t length, Buffer *replies) {
  size_t at = 0;
  while (length - at >= 6) {
    uint8_t *head = (uint8_t *)bytes + at;
    size_t size = head[1] & 127, start = 6;
    if ((head[1] & 128) == 0 || size == 127) return -1;
    if (size == 126) {
      if (length - at < 8) break;
      size = (size_t)head[2] << 8 | head[3];
      start = 8;
    }
    if (length - at < start + size) break;
    uint8_t *mask = head + start - 4;
    char *text = bytes + at + start;
    uint64_t wide;
    uint32_t narrow;
    memcpy(&narrow, mask, 4);
    wide = (uint64_t)narrow << 32 | narrow;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
      uint64_t word;
      memcpy(&word, text + i, 8);
      word ^= wide;
      memcpy(text + i, &word, 8);
    }
    for (; i < size; i++) text[i] ^= (char)mask[i & 3];
    int opcode = head[0] & 15;
    if (opcode == 8) return -1;
    if (opcode == 1 && size > 0) handleText(c, text, size, replies);
    at += start + size;
  }
  return (ssize_t)at;
}

/** SHA-1 (RFC 3174) of at most 119 bytes. */
static void sha1(const uint8_t *bytes, size_t length, uint8_t *digest) {
  uint8_t padded[128] = {0};
  size_t blocks = length + 9 <= 64 ? 1 : 2;
  memcpy(padded, bytes, length);
  padded[length] = 0x80;
  for (int i = 0; i < 8; i++)
    padded[blocks * 64 - 1 - (size_t)i] = (uint8_t)((uint64_t)length * 8 >> (8 * i));
  uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
  for (size_t block = 0; block < blocks; block++) {
    uint32_t w[80];
    for (int i = 0; i < 16; i++) {
      const uint8_t *p = padded + block * 64 + 4 * i;
      w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (int i = 16; i < 80; i++)
      w[i] = ROTATE(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
      uint32_t f, k;
      if (i < 20) f = (b & c) | (~b & d), k = 0x5a827999;
      else if (i < 40) f = b ^ c ^ d, k = 0x6ed9eba1;
      else if (i < 60) f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
      else f = b ^ c ^ d, k = 0xca62c1d6;
      uint32_t t = ROTATE(a, 5) + f + e + k + w[i];
      e = d, d = c, c = ROTATE(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
  }
#undef ROTATE
  for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/** Answers a handshake (RFC 6455 4.2.2). @returns bytes of the head; 0: incomplete; -1: no key */
static ssize_t upgrade(Connection *c, char *bytes, size_t length) {
  static const char name[] = "Sec-WebSocket-Key: ";
  static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *end = memmem(bytes, length, "\r\n\r\n", 4);
  if (end == NULL) return 0;
  char *key = memmem(bytes, (size_t)(end - bytes), name, sizeof name - 1);
  if (key == NULL || key + sizeof name - 1 + 24 > end) return -1;
  char joined[24 + sizeof guid];
  memcpy(joined, key + sizeof name - 1, 24);
  memcpy(joined + 24, guid, sizeof guid - 1);
  uint8_t digest[21] = {0};
  sha1((uint8_t *)joined, 24 + sizeof guid - 1, digest);
  char accept[29];
  for (int i = 0; i < 7; i++) {
    uint32_t three = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 |
                     digest[3 * i + 2];
    for (int j = 0; j < 4; j++) accept[4 * i + j] = digits[three >> (18 - 6 * j) & 63];
  }
  accept[27] = '=';
  accept[28] = 0;
  char answer[160];
  int size = snprintf(answer, sizeof answer,
                      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                      "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", accept);
  c->upgraded = 1;
  c->echoes = length > 9 && memcmp(bytes, "GET /echo", 9) == 0;
  writeTo(c, answer, (size_t)size);
  return end + 4 - bytes;
}

static ssize_t handlePeer(char *bytes, size_t length) {
  size_t at = 0;
  uint32_t sizes[2];
  while (length - at >= sizeof sizes) {
    memcpy(sizes, bytes + at, sizeof sizes);
    size_t total = sizeof sizes + sizes[0] + sizes[1];
    if (length - at < total) break;
    char *name = bytes + at + sizeof sizes;
    deliver(roomOf(name, sizes[1]), name + sizes[1], sizes[0], "", 0);
    at += total;
  }
  return (ssize_t)at;
}

/** Bytes of a peer that are not complete; `held` of a peer has the bytes to be sent to it. */
static Buffer partial[MAX_WORKERS];

static int peerIndex(const Connection *c) {
  for (int i = 0; i < peerCount; i++)
    if (peers[i] == c) return i;
  return 0;
}

static void readFrom(Connection *c) {
  static Buffer replies;
  ssize_t got = recv(c->fd, input, sizeof input, MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) closeLater(c);
    return;
  }
  Buffer *held = c->kind == PEER ? &partial[peerIndex(c)] : &c->held;
  char *bytes = input;
  size_t length = (size_t)got, at = 0;
  if (held->length > 0) {
    append(held, input, length);
    bytes = held->bytes;
    length = held->length;
  }
  if (c->kind == PEER) at = (size_t)handlePeer(bytes, length);
  else {
    ssize_t used = 0;
    if (!c->upgraded) used = upgrade(c, bytes, length);
    if (used >= 0 && c->upgraded) {
      at = (size_t)used;
      replies.length = 0;
      used = handleFrames(c, bytes + at, length - at, &replies);
      if (replies.length > 0) writeTo(c, replies.bytes, replies.length);
    }
    if (used < 0 || length - at - (size_t)used > MAX_MESSAGE) {
      closeLater(c);
      return;
    }
    at += (size_t)used;
  }
  if (held->length > 0) {
    memmove(held->bytes, held->bytes + at, length - at);
    held->length = length - at;
    if (held->length == 0) release(held);
  } else if (at < length) {
    append(held, bytes + at, length - at);
  }
}

static Connection *add(int fd, Kind kind) {
  Connection *c = calloc(1, sizeof *c);
  if (c == NULL) fail("calloc");
  c->fd = fd;
  c->kind = (uint8_t)kind;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
  return c;
}

static void acceptAll(void) {
  for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    add(fd, CLIENT);
  }
}

static void endTurn(void) {
  for (size_t i = 0; i < dirtyCount; i++) {
    Room *room = dirty[i];
    for (uint32_t j = 0; j < room->count; j++)
      writeTo(room->members[j]->connection, room->frames.bytes, room->frames.length);
    room->frames.length = 0;
  }
  dirtyCount = 0;
  for (int i = 0; i < peerCount; i++) {
    Buffer *out = &peers[i]->held;
    if (out->length > 0) writeTo(peers[i], out->bytes, out->length);
    out->length = 0;
  }
  for (size_t i = 0; i < closingCount; i++) {
    Connection *c = closing[i];
    if (c->kind == PEER) exit(0); // the server is being stopped
    leaveRooms(c);
    close(c->fd);
    release(&c->held);
    release(&c->unsent);
    free(c);
  }
  closingCount = 0;
}

static void setFields(void) {
  struct timeval now;
  gettimeofday(&now, NULL);
  unsigned long long ms = (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_usec / 1000;
  fieldsLength = (size_t)snprintf(fields, sizeof fields,
                                  ",\"from\":\"Zm9vYmFyMA1\",\"timestamp\":%llu}", ms);
}

static void work(uint16_t port) {
  int on = 1;
  listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0 ||
      bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
      listen(listener, BACKLOG) < 0)
    fail("listen");
  struct epoll_event events[MAX_EVENTS], event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) < 0) fail("epoll_ctl");
  for (;;) {
    int count = epoll_wait(poller, events, MAX_EVENTS, -1);
    if (count < 0 && errno != EINTR) fail("epoll_wait");
    setFields();
    for (int i = 0; i < count; i++) {
      Connection *c = events[i].data.ptr;
      if (c == NULL) acceptAll();
      else {
        if (events[i].events & EPOLLOUT && !c->closing) writeUnsent(c);
        if (events[i].events & ~(uint32_t)EPOLLOUT && !c->closing) readFrom(c);
      }
    }
    endTurn();
  }
}

static void stop(int signal) {
  (void)signal;
  _exit(0); // the workers follow their parent
}

int main(void) {
  const char *portText = getenv("PORT"), *workersText = getenv("WORKERS");
  int port = portText == NULL ? 3000 : atoi(portText);
  int workers = workersText == NULL ? 2 : atoi(workersText);
  if (workers < 1) workers = 1;
  if (workers > MAX_WORKERS || port < 1 || port > 65535) {
    fprintf(stderr, "PORT or WORKERS out of range\n");
    return 1;
  }
  signal(SIGTERM, stop);
  static int pairs[MAX_WORKERS][MAX_WORKERS];
  for (int i = 0; i < workers; i++) {
    for (int j = i + 1; j < workers; j++) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0) fail("socketpair");
      pairs[i][j] = ends[0];
      pairs[j][i] = ends[1];
    }
  }
  for (int i = 0; i < workers; i++) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child > 0) continue;
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) fail("epoll_create1");
    for (int j = 0; j < workers; j++) {
      if (j != i) peers[peerCount++] = add(pairs[i][j], PEER);
      for (int k = 0; k < workers; k++)
        if (j != i && k != j && pairs[j][k] != 0) close(pairs[j][k]);
    }
    work((uint16_t)port);
  }
  for (;;) {
    if (wait(NULL) < 0 && errno == ECHILD) return 1;
  }
}
