// stream.js: publishes a text to a room while it grows, so that no viewer loses or repeats a
// character. Copy this file.
//
// Tokens of 50 ms go out together, because a message per token would cost each viewer more messages.
// Each part has the number of its first character, so a part that arrives behind a newer state
// changes nothing. A part is repeated with the same idempotency key until Fanfare has accepted it. The text
// itself stays here, for viewers that come too late for the history of the room.

const EVERY_MS = 50;
const RETRY_MS = 200;
/** Largest part, in characters. FANFARE_MAX_MESSAGE_BYTES is 100 KiB. */
const MAX_PART = 16_000;
const REPEATABLE = [429, 500, 502, 503, 504];

export class TextStream {
  text = '';
  isDone = false;
  /** Of the last part that Fanfare has accepted. @type {{epoch: string, offset: number}|undefined} */
  position;

  /**
   * @param {string} url of Fanfare, `http://localhost:3000`
   * @param {string} apiKey with the right `publish`
   * @param {string} room a room with history
   */
  constructor(url, apiKey, room) {
    this.url = url;
    this.apiKey = apiKey;
    this.room = room;
  }

  /**
   * @param {AsyncIterable<string>} tokens if it fails, the text ends there
   * @returns {Promise<void>} viewers have the last part; rejects with the failure
   */
  async run(tokens) {
    let isComplete = false;
    /** @type {unknown} */
    let failure;
    const reading = (async () => {
      try {
        for await (const token of tokens) this.text += token;
      } catch (error) {
        failure = error;
      }
      isComplete = true;
    })();
    for (let at = 0; !this.isDone; ) {
      // Before the text is read, so that a complete text is read whole.
      const isLast = isComplete;
      const text = this.text.slice(at, at + MAX_PART);
      const done = isLast && at + text.length === this.text.length;
      if (text !== '' || done) await this.#publish({ at, text, done });
      this.isDone = done;
      at += text.length;
      await Promise.race([pause(EVERY_MS), isLast ? undefined : reading]);
    }
    if (failure !== undefined) throw failure;
  }

  /** @param {{at: number, text: string, done: boolean}} payload */
  async #publish(payload) {
    const request = {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${this.apiKey}`,
        'Content-Type': 'application/json',
        'Idempotency-Key': crypto.randomUUID(),
      },
      body: JSON.stringify({ room: this.room, payload }),
    };
    for (;;) {
      const response = await fetch(`${this.url}/api/publish`, request).catch(() => null);
      if (response?.ok) {
        this.position = /** @type {{epoch: string, offset: number}} */ (await response.json());
        return;
      }
      // null: Fanfare restarts.
      if (response !== null && !REPEATABLE.includes(response.status))
        throw new Error(`publish failed: ${response.status} ${await response.text()}`);
      await pause(RETRY_MS);
    }
  }
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
