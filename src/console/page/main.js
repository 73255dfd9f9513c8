// main.js: the page: asks for a key if one is needed, then shows the frame.

import { render } from 'preact';
import { get, setKey } from './api.js';
import { Frame } from './frame.js';
import { html } from './html.js';
import { empty, field, icon } from './parts.js';

/** @import { ApiError } from './api.js' */
/** @import { Session } from './view.js' */

async function openPage() {
  try {
    const session = /** @type {Session} */ (await get('/session'));
    render(html`<${Frame} session=${session} />`, document.body);
  } catch (error) {
    const { status, message } = /** @type {ApiError} */ (error);
    if (status === 401 || status === 403) return askForKey(status, message);
    const page = html`<main class="alone">
      ${empty('alert', 'The console is not available', message)}
      <button class="button" onclick=${openPage}>Try again</button>
    </main>`;
    render(page, document.body);
  }
}

/** @param {number} status @param {string} message */
function askForKey(status, message) {
  const wasRefused = sessionStorage.length > 0 || status === 403;
  setKey('');
  const submit = (/** @type {Event & {currentTarget: HTMLFormElement}} */ event) => {
    event.preventDefault();
    setKey(/** @type {string} */ (new FormData(event.currentTarget).get('key')).trim());
    openPage();
  };
  const input = html`<input
    type="password" name="key" required autocomplete="off" autofocus aria-describedby="key-hint"
  />`;
  const page = html`<main class="alone">
    <form class="card key-card" onsubmit=${submit}>
      <img src="/console/icon.svg" alt="" width="44" height="44" />
      <h1>Fanfare</h1>
      <p class="muted" id="key-hint">
        This console needs an API key with the right console. The key stays in this tab.
      </p>
      ${wasRefused && html`<p class="fault" role="alert">${message}</p>`}
      ${field('API key', input)}
      <button class="button primary">${icon('key')}Open the console</button>
    </form>
  </main>`;
  // Another form, so that it is empty and an alert is announced again.
  render(null, document.body);
  render(page, document.body);
  document.querySelector('input')?.focus();
}

openPage();
