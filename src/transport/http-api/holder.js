// holder.js: who makes requests to an HTTP API: an API key, or an app. Its requests share limits.

export class Holder {
  /** The name in the log. */
  name = '';
  /** The app that its requests are about; null: none. @type {{id: string}|null} */
  app = null;
  /** The token bucket, for the limiter. */
  bucket = { fullAt: -0.5 };
  inFlight = 0;

  enter() {
    this.inFlight++;
  }

  leave() {
    this.inFlight--;
  }
}
