// frame.js: the frame of the page: the navigation, the poll, the theme.
//   every few seconds: new samples -> Samples -> the view of the address

import { Component, createRef } from 'preact';
import { get, setKey } from './api.js';
import { Notices } from './dialog.js';
import { clock } from './format.js';
import { html } from './html.js';
import { icon, pill } from './parts.js';
import { lookUp, PLACES } from './places.js';
import { repeat } from './polled.js';
import { Samples } from './samples.js';
import { banner, bannersOf, statusOf } from './trouble.js';

/** @import { ApiError } from './api.js' */
/** @import { App, Session } from './view.js' */

const RESIZE_MS = 150;
const THEMES = /** @type {const} */ ([
  ['light', 'sun', 'Light'],
  ['system', 'system', 'As the system'],
  ['dark', 'moon', 'Dark'],
]);

/**
 * @typedef {object} State
 * @property {string} hash of the address @property {number} look as the views get it
 * @property {number} seenMs when the server last answered @property {boolean} isStale it does not
 * @extends {Component<{session: Session}, State>}
 */
export class Frame extends Component {
  /** @type {State} */
  state = { hash: location.hash, look: 0, seenMs: Date.now(), isStale: false };
  #samples = new Samples(this.props.session.points);
  /** @type {App} */
  #app = {
    session: this.props.session,
    samples: this.#samples,
    can: (right) => this.props.session.rights.includes(right),
  };
  /** @type {import('preact').RefObject<HTMLElement|null>} */
  #main = createRef();

  componentDidMount() {
    addEventListener('hashchange', () => this.setState({ hash: location.hash }));
    let timer = 0;
    addEventListener('resize', () => {
      clearTimeout(timer);
      timer = setTimeout(this.#redraw, RESIZE_MS);
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', this.#redraw);
    this.#showTitle();
    repeat(() => this.#poll(), this.props.session.sampleMs);
  }

  /** @param {unknown} _props @param {State} before */
  componentDidUpdate(_props, { hash }) {
    if (hash === this.state.hash) return;
    this.#showTitle();
    window.scrollTo(0, 0);
    // A reader hears the new title; the first view leaves the focus where it is.
    this.#main.current?.querySelector('h1')?.focus({ preventScroll: true });
  }

  #redraw = () => this.setState(({ look }) => ({ look: look + 1 }));

  #showTitle() {
    const { place, name } = lookUp(this.state.hash);
    document.title = `${name || place.title} · ${this.props.session.server} · Fanfare`;
  }

  async #poll() {
    try {
      this.#samples.addPart(
        /** @type {any} */ (await get(`/history?since=${this.#samples.since}`)),
      );
      this.setState({ seenMs: Date.now(), isStale: false });
    } catch (error) {
      const { status } = /** @type {ApiError} */ (error);
      if (status === 401 || status === 403) location.reload();
      else this.setState({ isStale: true });
    }
  }

  render() {
    const { hash, look, seenMs, isStale } = this.state;
    const { session } = this.props;
    const { last } = this.#samples;
    const { place, path, name, View } = lookUp(hash);
    const skip = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#main.current?.focus();
    };
    const silence = banner(
      `${session.server} does not answer. Last seen ${clock(seenMs)}.`,
      'The figures below are from then. The page tries again every few seconds.',
    );
    return html`
      <a class="skip" href="#main" onclick=${skip}>Skip to the content</a>
      <div class="frame ${isStale ? 'is-stale' : ''}">
        ${this.#side(place)}
        <main id="main" tabindex="-1" ref=${this.#main}>
          <div class="banners" role="alert">
            ${isStale ? silence : last !== null && bannersOf(session, last)}
          </div>
          <div class="view">
            <${View} key=${hash} app=${this.#app} path=${path} name=${name} look=${look} />
          </div>
        </main>
      </div>
      <${Notices} />`;
  }

  /** @param {import('./places.js').Place} current */
  #side(current) {
    const { session } = this.props;
    const { seenMs, isStale } = this.state;
    const { last } = this.#samples;
    const silence = html`<p class="flex wrap">${pill('bad', 'no answer')}<span>last seen ${clock(seenMs)}</span></p>`;
    const forget = () => {
      setKey('');
      location.reload();
    };
    return html`<aside class="side stack">
      <a class="brand flex" href="#/">
        <img src="/console/icon.svg" alt="" width="28" height="28" /><span>Fanfare</span>
      </a>
      <nav class="stack" aria-label="Views">
        ${PLACES.map(
          (
            place,
          ) => html`<a class="flex" href="#/${place.path}" aria-current=${place === current ? 'page' : null}>
            ${icon(place.icon)}<span>${place.title}</span>
          </a>`,
        )}
      </nav>
      <div class="side-foot stack">
        <div class="status muted tiny" role="status">
          ${isStale ? silence : last !== null && statusOf(session, last)}
        </div>
        <div class="themes" role="group" aria-label="Theme">${THEMES.map(this.#themeButton)}</div>
        ${
          session.key !== '' &&
          html`<button class="button quiet" onclick=${forget}>
            ${icon('key')}Forget key ${session.key}
          </button>`
        }
      </div>
    </aside>`;
  }

  /** @param {typeof THEMES[number]} theme */
  #themeButton = ([theme, name, label]) => {
    const { dataset } = document.documentElement;
    const choose = () => {
      if (theme === 'system') delete dataset.theme;
      else dataset.theme = theme;
      try {
        if (theme === 'system') localStorage.removeItem('fanfare-theme');
        else localStorage.setItem('fanfare-theme', theme);
      } catch {
        // Storage is forbidden: the choice ends with the page.
      }
      this.#redraw();
    };
    return html`<button
      type="button" aria-label=${label} title=${label} onclick=${choose}
      aria-pressed=${theme === (dataset.theme ?? 'system')}
    >${icon(name)}</button>`;
  };
}
