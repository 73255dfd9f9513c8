// loopback-probe.js: checks that publications still come back.
//
// A subscriber's connection may be dead although it looks alive: a frozen Redis, a firewall that
// forgot it, a failover. So every `intervalMs` a message is published on this worker's own
// channel. If MAX_MISSES messages do not return within PROBE_TIMEOUT_MS, the socket is destroyed.
// If Redis refuses the publish, a PING over the subscriber's connection replaces it.

const PROBE_TIMEOUT_MS = 1500;
const MAX_MISSES = 2;
export const PROBE_BYTES = 4;

export class LoopbackProbe {
  /**
   * @param {object} parts @param {(token: Buffer) => Promise<void>} parts.publish
   * @param {() => Promise<unknown>} parts.ping over the subscriber's connection
   * @param {() => number} parts.intervalMs between two probes, at least PROBE_TIMEOUT_MS
   * @param {(seconds: number) => void} parts.onRoundTrip through the bus
   * @param {(isWholeBus: boolean) => void} parts.onAnswer the subscriber's connection is alive;
   *   `isWholeBus`: the answer came through the bus
   * @param {() => void} parts.onMiss
   * @param {(hasAnswered: boolean) => void} parts.onDead has a probe come back since `start`?
   * @param {(error: unknown) => void} parts.onRefused the probe could not be published
   */
  constructor({ publish, ping, intervalMs, onRoundTrip, onAnswer, onMiss, onDead, onRefused }) {
    this.publish = publish;
    this.ping = ping;
    this.intervalMs = intervalMs;
    this.onRoundTrip = onRoundTrip;
    this.onAnswer = onAnswer;
    this.onMiss = onMiss;
    this.onDead = onDead;
    this.onRefused = onRefused;
    this.isRunning = false;
    this.misses = 0;
    this.hasAnswered = false;
    /** The token of the probe under way; 0 if there is none. */
    this.token = 0;
    this.lastToken = 0;
    /** On the live clock. */
    this.sentMs = 0;
    this.sentAt = 0;
  }

  /** Called when the subscriber is live. @param {number} nowMs on the live clock */
  start(nowMs) {
    this.isRunning = true;
    this.misses = 0;
    this.hasAnswered = false;
    this.#send(nowMs);
  }

  /** A probe under way proves nothing about a new connection. @param {number} nowMs live clock */
  restart(nowMs) {
    if (this.isRunning) this.#send(nowMs);
  }

  stop() {
    this.isRunning = false;
    this.token = 0;
  }

  /** When the probe under way is lost, or the next one leaves; on the live clock. */
  get dueMs() {
    const ms = this.token === 0 ? this.intervalMs() : PROBE_TIMEOUT_MS;
    return this.isRunning ? this.sentMs + ms : Number.POSITIVE_INFINITY;
  }

  get nextToken() {
    return (this.lastToken % 0xffffffff) + 1;
  }

  /** @param {number} nowMs on the live clock */
  tick(nowMs) {
    if (!this.isRunning) return;
    if (this.token !== 0 && nowMs - this.sentMs >= PROBE_TIMEOUT_MS) {
      this.token = 0;
      this.misses++;
      this.onMiss();
      if (this.misses >= MAX_MISSES) {
        this.stop();
        this.onDead(this.hasAnswered);
        return;
      }
    }
    if (this.token !== 0) return;
    // After a miss the next one leaves at once.
    const waitMs = this.misses > 0 ? PROBE_TIMEOUT_MS : this.intervalMs();
    if (nowMs - this.sentMs >= waitMs) this.#send(nowMs);
  }

  /** @param {Buffer} message */
  receive(message) {
    if (
      message.length !== PROBE_BYTES ||
      this.token === 0 ||
      message.readUInt32BE(0) !== this.token
    )
      return;
    this.hasAnswered = true;
    this.onRoundTrip((performance.now() - this.sentAt) / 1000);
    this.#answered(true);
  }

  /** @param {number} nowMs */
  #send(nowMs) {
    const token = this.nextToken;
    this.lastToken = token;
    this.token = token;
    this.sentMs = nowMs;
    this.sentAt = performance.now();
    const message = Buffer.allocUnsafe(PROBE_BYTES);
    message.writeUInt32BE(token, 0);
    this.publish(message).catch((error) => {
      if (this.token !== token || error.code !== 'UNAVAILABLE') return;
      // The subscriber is not at fault.
      this.onRefused(error);
      this.ping().then(
        () => {
          if (this.token === token) this.#answered(false);
        },
        () => {
          // If no answer comes, tick() counts a miss.
        },
      );
    });
  }

  /** @param {boolean} isWholeBus */
  #answered(isWholeBus) {
    this.token = 0;
    this.misses = 0;
    this.onAnswer(isWholeBus);
  }
}
