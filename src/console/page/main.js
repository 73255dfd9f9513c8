// main.js: the frame of the page: the key, the navigation, the poll, the theme.
//   session -> (asks for a key) -> frame -> view by the hash of the address
//   every few seconds: the samples since the last ones -> store -> view.update()

import { get, setKey } from './api.js';
import { noticeArea } from './dialog.js';
import { doctorView } from './doctor.js';
import { el, empty, field, fill, h, icon, pill } from './dom.js';
import { clock } from './format.js';
import { limitsView } from './limits.js';
import { overview } from './overview.js';
import { publishView } from './publish.js';
import { roomView } from './room.js';
import { roomsView, topRoomsView } from './rooms.js';
import { serversView } from './servers.js';
import { Store } from './store.js';
import { usersView } from './users.js';
import { webhooksView } from './webhooks.js';

/** @import { ApiError } from './api.js' */

const RESIZE_MS = 150;
/** Servers that a banner names. */
const MAX_NAMED = 8;

/** @import { App, Session, View } from './view.js' */

/**
 * @typedef {object} Place
 * @property {string} path
 * @property {readonly string[]} [others] paths of further views of the same place
 * @property {string} title @property {import('./dom.js').IconName} icon
 * @property {(app: App, name: string, path: string) => View} view
 */

/** @type {readonly Place[]} */
const PLACES = [
  { path: '', title: 'Overview', icon: 'overview', view: overview },
  {
    path: 'rooms',
    title: 'Rooms',
    icon: 'rooms',
    others: ['largest', 'busiest'],
    view: (app, name, path) => {
      if (path !== 'rooms')
        return topRoomsView(app, path === 'largest' ? 'connections' : 'messages');
      return name === '' ? roomsView(app) : roomView(app, name);
    },
  },
  {
    path: 'users',
    title: 'Users',
    icon: 'users',
    others: ['members', 'addresses', 'connections'],
    view: usersView,
  },
  { path: 'publish', title: 'Publish', icon: 'publish', view: publishView },
  { path: 'servers', title: 'Servers', icon: 'servers', view: serversView },
  { path: 'webhooks', title: 'Webhooks', icon: 'plug', view: webhooksView },
  { path: 'limits', title: 'Limits', icon: 'limits', view: limitsView },
  { path: 'doctor', title: 'Doctor', icon: 'doctor', view: doctorView },
];

async function begin() {
  try {
    const session = /** @type {Session} */ (await get('/session'));
    new Frame(session).open();
  } catch (error) {
    const { status, message } = /** @type {ApiError} */ (error);
    if (status === 401 || status === 403) askForKey(status, message);
    else
      fill(
        document.body,
        el(
          'main.alone',
          empty('alert', 'The console is not available', message),
          h('button.button', { onclick: begin }, 'Try again'),
        ),
      );
  }
}

/** @param {number} status @param {string} message */
function askForKey(status, message) {
  const wasRefused = sessionStorage.length > 0 || status === 403;
  setKey('');
  const input = h('input', {
    type: 'password',
    name: 'key',
    required: true,
    autocomplete: 'off',
    autofocus: true,
    'aria-describedby': 'key-hint',
  });
  fill(
    document.body,
    el(
      'main.alone',
      h(
        'form.card.key-card',
        {
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            setKey(input.value.trim());
            begin();
          },
        },
        h('img', { src: '/console/icon.svg', alt: '', width: 44, height: 44 }),
        el('h1', 'Fanfare'),
        h(
          'p.muted',
          { id: 'key-hint' },
          'This console needs an API key with the right console. The key stays in this tab.',
        ),
        wasRefused && h('p.fault', { role: 'alert' }, message),
        field('API key', input),
        el('button.button.primary', icon('key'), 'Open the console'),
      ),
    ),
  );
  input.focus();
}

class Frame {
  /** @type {View|null} */
  #view = null;
  #banner = h('div.banners', { role: 'alert' });
  /** The text of the banner. A screen reader hears it again only if it has changed. */
  #warning = '';
  #content = el('div.view');
  #main = h('main', { id: 'main', tabindex: -1 }, this.#banner, this.#content);
  #status = h('div.status', { role: 'status' });
  #links = PLACES.map((place) =>
    h('a', { href: `#/${place.path}` }, icon(place.icon), el('span', place.title)),
  );
  #page = el('div.frame');
  #seenMs = Date.now();

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.store = new Store(session.points);
    /** @type {App} */
    this.app = {
      session,
      store: this.store,
      can: (right) => session.rights.includes(right),
    };
  }

  open() {
    fill(document.body, this.#skipLink(), this.#page, noticeArea);
    fill(this.#page, this.#side(), this.#main);
    const redraw = () => this.#view?.redraw?.();
    addEventListener('hashchange', () => this.#show(false));
    let timer = 0;
    addEventListener('resize', () => {
      clearTimeout(timer);
      timer = setTimeout(redraw, RESIZE_MS);
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
    this.#show(true);
    this.#poll();
  }

  #skipLink() {
    const skip = (/** @type {Event} */ event) => {
      event.preventDefault();
      this.#main.focus();
    };
    return h('a.skip', { href: '#main', onclick: skip }, 'Skip to the content');
  }

  #side() {
    const { key } = this.session;
    const forget = () => {
      setKey('');
      location.reload();
    };
    return el(
      'aside.side',
      h(
        'a.brand',
        { href: '#/' },
        h('img', { src: '/console/icon.svg', alt: '', width: 28, height: 28 }),
        el('span', 'Fanfare'),
      ),
      h('nav', { 'aria-label': 'Views' }, this.#links),
      el(
        'div.side-foot',
        this.#status,
        themeSwitch(() => this.#view?.redraw?.()),
        key !== '' &&
          h('button.button.quiet', { onclick: forget }, icon('key'), `Forget key ${key}`),
      ),
    );
  }

  /** Shows the view that the address names. @param {boolean} isFirst */
  #show(isFirst) {
    const [path, name = ''] = location.hash.replace(/^#\//, '').split('/');
    const index = Math.max(
      0,
      PLACES.findIndex((place) => place.path === path || place.others?.includes(path)),
    );
    this.#view?.close?.();
    const view = PLACES[index].view(this.app, decoded(name), path);
    this.#view = view;
    fill(this.#content, view.element);
    document.title = `${view.title} · ${this.session.server} · Fanfare`;
    for (const [i, link] of this.#links.entries()) {
      if (i === index) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    view.update?.();
    window.scrollTo(0, 0);
    // A reader hears the new title; the first view leaves the focus where it is.
    if (!isFirst) this.#main.querySelector('h1')?.focus({ preventScroll: true });
  }

  async #poll() {
    const { app, session, store } = this;
    try {
      store.add(/** @type {any} */ (await get(`/history?since=${store.since}`)));
      this.#seenMs = Date.now();
      this.#page.classList.remove('is-stale');
      fill(this.#status, statusOf(app));
      this.#warn([outageOf(app), goneOf(app)].filter((trouble) => trouble !== null));
      this.#view?.update?.();
    } catch (error) {
      const { status } = /** @type {ApiError} */ (error);
      if (status === 401 || status === 403) return location.reload();
      const lastSeen = `last seen ${clock(this.#seenMs)}`;
      this.#page.classList.add('is-stale');
      fill(this.#status, el('p', pill('bad', 'no answer'), el('span', lastSeen)));
      this.#warn([
        {
          title: `${session.server} does not answer. Last seen ${clock(this.#seenMs)}.`,
          text: 'The figures below are from then. The page tries again every few seconds.',
        },
      ]);
    }
    setTimeout(() => this.#poll(), session.sampleMs);
  }

  /** @param {readonly Trouble[]} troubles */
  #warn(troubles) {
    const text = troubles.map((one) => one.title + one.text).join('\n');
    if (text === this.#warning) return;
    this.#warning = text;
    fill(
      this.#banner,
      troubles.map((one) =>
        el('div.banner', icon('alert'), el('div', el('strong', one.title), el('p', one.text))),
      ),
    );
  }
}

/** Shown as a banner. @typedef {{title: string, text: string}} Trouble */

/** @param {App} app */
function statusOf({ session, store: { last } }) {
  if (last === null) return [];
  const { ready, workers, draining } = last.readiness;
  const { sinceMs } = last.broker;
  const isWhole = ready === workers && sinceMs === null;
  const tone = draining ? 'warn' : isWhole ? 'good' : ready > 0 ? 'warn' : 'bad';
  const state = draining
    ? 'draining'
    : ready === 0
      ? 'not ready'
      : sinceMs === null
        ? 'ready'
        : 'degraded';
  const broker = brokerName(session);
  const dead = deadOf(last);
  return [
    dead.length > 0 &&
      el(
        'p',
        pill('bad', dead.length === 1 ? `${dead[0].name} dead` : `${dead.length} servers dead`),
        ' ',
        el('span', `since ${clock(Math.max(...dead.map(({ seenMs }) => seenMs)))}`),
      ),
    el('p', pill(tone, state), el('span', `${ready} of ${workers} workers`)),
    sinceMs === null
      ? session.broker === 'redis' && el('p', pill('good', broker))
      : el('p', pill('bad', `${broker} unavailable`), ' ', el('span', `since ${clock(sinceMs)}`)),
  ];
}

/** @param {import('./store.js').Part} last @returns servers that stopped answering without a drain */
function deadOf({ fleet }) {
  return fleet.servers.filter(({ state }) => state === 'dead');
}

/** @param {App} app @returns {Trouble|null} */
function goneOf({ store: { last } }) {
  const dead = last === null ? [] : deadOf(last);
  if (dead.length === 0) return null;
  const [{ name, seenMs }] = dead;
  const about =
    'Clients of a dead server reconnect to the others. If you stopped it on purpose, this notice goes 15 minutes after its last answer.';
  if (dead.length === 1)
    return { title: `${name} does not answer since ${clock(seenMs)}`, text: about };
  const names = dead.slice(0, MAX_NAMED).map((one) => `${one.name} (${clock(one.seenMs)})`);
  const others = dead.length > names.length ? ` and ${dead.length - names.length} more` : '';
  return {
    title: `${dead.length} servers do not answer`,
    text: `Last seen: ${names.join(', ')}${others}. ${about}`,
  };
}

/** @param {App} app @returns {Trouble|null} */
function outageOf({ session, store: { last } }) {
  if (last === null || last.broker.sinceMs === null) return null;
  const { sinceMs, without, workers } = last.broker;
  const scope =
    without === workers ? 'For all workers of this server' : `For ${without} of ${workers} workers`;
  return {
    title: `${brokerName(session)} unavailable since ${clock(sinceMs)}`,
    text: `${scope}. Clients stay connected, but messages and joins that need it are answered with UNAVAILABLE. Rooms with history catch up when it is back.`,
  };
}

/** @param {Session} session */
function brokerName({ broker }) {
  return broker === 'redis' ? 'Redis' : 'Embedded broker';
}

/** @param {string} text of the hash */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {() => void} onChange */
function themeSwitch(onChange) {
  const themes = /** @type {const} */ ([
    ['light', 'sun', 'Light'],
    ['system', 'system', 'As the system'],
    ['dark', 'moon', 'Dark'],
  ]);
  const root = document.documentElement;
  const group = h('div.themes', { role: 'group', 'aria-label': 'Theme' });
  const buttons = themes.map(([theme, name, label]) =>
    h(
      'button',
      {
        type: 'button',
        'aria-label': label,
        title: label,
        onclick: () => {
          if (theme === 'system') delete root.dataset.theme;
          else root.dataset.theme = theme;
          try {
            if (theme === 'system') localStorage.removeItem('fanfare-theme');
            else localStorage.setItem('fanfare-theme', theme);
          } catch {
            // Storage is forbidden: the choice ends with the page.
          }
          mark();
          onChange();
        },
      },
      icon(name),
    ),
  );
  const mark = () => {
    const current = root.dataset.theme ?? 'system';
    for (const [i, button] of buttons.entries())
      button.setAttribute('aria-pressed', String(themes[i][0] === current));
  };
  mark();
  fill(group, buttons);
  return group;
}

begin();
