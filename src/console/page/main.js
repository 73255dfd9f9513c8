// main.js: the frame of the page: the key, the navigation, the poll, the theme.
//
//   session -> (asks for a key) -> frame -> view by the hash of the address
//   every few seconds: the samples since the last ones -> store -> view.update()

import { get, setKey } from './api.js';
import { noticeArea } from './dialog.js';
import { doctorView } from './doctor.js';
import { empty, field, fill, h, icon, pill } from './dom.js';
import { Fleet } from './fleet.js';
import { clock } from './format.js';
import { limitsView } from './limits.js';
import { overview } from './overview.js';
import { publishView } from './publish.js';
import { roomView } from './room.js';
import { roomsView, topRoomsView } from './rooms.js';
import { serversView } from './servers.js';
import { Store } from './store.js';
import { usersView } from './users.js';

const RESIZE_MS = 150;

/** @typedef {import('./view.js').App} App */
/** @typedef {import('./view.js').Session} Session */
/** @typedef {import('./view.js').View} View */

/**
 * @typedef {object} Place
 * @property {string} path
 * @property {readonly string[]} [others] paths of further views of the same place
 * @property {string} title
 * @property {import('./dom.js').IconName} icon
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
    others: ['addresses', 'connections'],
    view: usersView,
  },
  { path: 'publish', title: 'Publish', icon: 'publish', view: publishView },
  { path: 'servers', title: 'Servers', icon: 'servers', view: serversView },
  { path: 'limits', title: 'Limits', icon: 'limits', view: limitsView },
  { path: 'doctor', title: 'Doctor', icon: 'doctor', view: doctorView },
];

async function begin() {
  try {
    const session = /** @type {Session} */ (await get('/session'));
    frame(session);
  } catch (error) {
    const { status, message } = /** @type {import('./api.js').ApiError} */ (error);
    if (status === 401 || status === 403) askForKey(status, message);
    else
      fill(
        document.body,
        h(
          'main',
          { class: 'alone' },
          empty('alert', 'The console is not available', message),
          h('button', { class: 'button', onclick: begin }, 'Try again'),
        ),
      );
  }
}

/**
 * @param {number} status
 * @param {string} message
 */
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
    h(
      'main',
      { class: 'alone' },
      h(
        'form',
        {
          class: 'card key-card',
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            setKey(input.value.trim());
            begin();
          },
        },
        h('img', { src: '/console/icon.svg', alt: '', width: 44, height: 44 }),
        h('h1', null, 'Fanfare'),
        h(
          'p',
          { class: 'muted', id: 'key-hint' },
          'This console needs an API key with the right console. The key stays in this tab.',
        ),
        wasRefused && h('p', { class: 'fault', role: 'alert' }, message),
        field('API key', input),
        h('button', { class: 'button primary' }, icon('key'), 'Open the console'),
      ),
    ),
  );
  input.focus();
}

/** @param {Session} session */
function frame(session) {
  const store = new Store(session.points);
  /** @type {App} */
  const app = {
    session,
    store,
    fleet: new Fleet(),
    can: (right) => session.rights.includes(right),
  };
  const banner = h('div', { class: 'banners', role: 'alert' });
  const content = h('div', { class: 'view' });
  const main = h('main', { id: 'main', tabindex: -1 }, banner, content);
  const status = h('div', { class: 'status', role: 'status' });
  const links = PLACES.map((place) =>
    h('a', { href: `#/${place.path}` }, icon(place.icon), h('span', null, place.title)),
  );
  const page = h('div', { class: 'frame' });
  fill(
    document.body,
    h(
      'a',
      {
        class: 'skip',
        href: '#main',
        onclick: (/** @type {Event} */ event) => {
          event.preventDefault();
          main.focus();
        },
      },
      'Skip to the content',
    ),
    page,
    noticeArea,
  );
  fill(
    page,
    h(
      'aside',
      { class: 'side' },
      h(
        'a',
        { class: 'brand', href: '#/' },
        h('img', { src: '/console/icon.svg', alt: '', width: 28, height: 28 }),
        h('span', null, 'Fanfare'),
      ),
      h('nav', { 'aria-label': 'Views' }, links),
      h(
        'div',
        { class: 'side-foot' },
        status,
        themeSwitch(() => view?.redraw?.()),
        session.key !== '' &&
          h(
            'button',
            {
              class: 'button quiet',
              onclick: () => {
                setKey('');
                location.reload();
              },
            },
            icon('key'),
            `Forget key ${session.key}`,
          ),
      ),
    ),
    main,
  );

  /** @type {View|null} */
  let view = null;
  /** @param {boolean} isFirst */
  const show = (isFirst) => {
    const [path, name = ''] = location.hash.replace(/^#\//, '').split('/');
    const index = Math.max(
      0,
      PLACES.findIndex((place) => place.path === path || place.others?.includes(path)),
    );
    view?.close?.();
    view = PLACES[index].view(app, decoded(name), path);
    fill(content, view.element);
    document.title = `${view.title} · ${session.server} · Fanfare`;
    for (const [i, link] of links.entries()) {
      if (i === index) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    view.update?.();
    window.scrollTo(0, 0);
    // A reader hears the new title; the first view leaves the focus where it is.
    if (!isFirst) main.querySelector('h1')?.focus({ preventScroll: true });
  };
  addEventListener('hashchange', () => show(false));
  let timer = 0;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(() => view?.redraw?.(), RESIZE_MS);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view?.redraw?.());

  /** The text of the banner. A screen reader hears it again only if it has changed. */
  let shown = '';
  /** @param {{title: string, text: string}|null} trouble */
  const warn = (trouble) => {
    const key = trouble === null ? '' : trouble.title + trouble.text;
    if (key === shown) return;
    shown = key;
    fill(
      banner,
      trouble !== null &&
        h(
          'div',
          { class: 'banner' },
          icon('alert'),
          h('div', null, h('strong', null, trouble.title), h('p', null, trouble.text)),
        ),
    );
  };
  let seenMs = Date.now();
  const poll = async () => {
    try {
      store.add(/** @type {any} */ (await get(`/history?since=${store.since}`)));
      seenMs = Date.now();
      page.classList.remove('is-stale');
      fill(status, statusOf(app));
      warn(outageOf(app));
      view?.update?.();
    } catch (error) {
      const { status: code } = /** @type {import('./api.js').ApiError} */ (error);
      if (code === 401 || code === 403) return location.reload();
      page.classList.add('is-stale');
      fill(
        status,
        h('p', null, pill('bad', 'no answer'), h('span', null, `last seen ${clock(seenMs)}`)),
      );
      warn({
        title: `${session.server} does not answer. Last seen ${clock(seenMs)}.`,
        text: 'The figures below are from then. The page tries again every few seconds.',
      });
    }
    setTimeout(poll, session.sampleMs);
  };
  show(true);
  poll();
}

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
  return [
    h('p', null, pill(tone, state), h('span', null, `${ready} of ${workers} workers`)),
    sinceMs === null
      ? session.broker === 'redis' && h('p', null, pill('good', broker))
      : h(
          'p',
          null,
          pill('bad', `${broker} unavailable`),
          ' ',
          h('span', null, `since ${clock(sinceMs)}`),
        ),
  ];
}

/** @param {App} app */
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

/**
 * @param {string} text of the hash
 * @returns {string}
 */
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
  const group = h('div', { class: 'themes', role: 'group', 'aria-label': 'Theme' });
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
