// chat.js: the page of the chat, on the client library.

import { Fanfare } from '/client/index.js';

const STATES = { connected: 'Online', closed: 'Refused: reload the page.' };
const get = (id) => document.getElementById(id);
const name = new URLSearchParams(location.search).get('name');
get('login').hidden = name !== null;
get('chat').hidden = name === null;
if (name !== null) enter(await (await fetch('/server-url')).text());

function enter(url) {
  const fanfare = new Fanfare(url, {
    token: async () => {
      const response = await fetch(`/token?name=${encodeURIComponent(name)}`);
      return response.ok ? response.text() : Promise.reject(new Error('No token.'));
    },
  });
  fanfare.on('state', (state) => {
    get('chat').classList.toggle('offline', state !== 'connected');
    get('state').textContent = STATES[state] ?? 'Reconnecting…';
  });

  // Messages: the last 50, then live ones. If some were lost, the page starts over.
  const room = fanfare.join('chat.lobby', {
    last: 50,
    recoverFailed: () => room.history({ limit: 50 }),
  });
  room.on('message', show);
  room.on('reset', ({ messages }, position) => {
    get('messages').replaceChildren();
    for (const { payload, ...meta } of messages)
      if (meta.offset <= position.offset) show(payload, meta);
  });

  // Older messages: a page that ends before the first message shown.
  room.on('joined', ({ position }) => {
    get('older').hidden = position.offset <= 50;
  });
  get('older').onclick = async () => {
    const first = get('messages').firstChild;
    try {
      const { messages, more } = await room.history({ before: first?.meta, limit: 50 });
      // After a second click, or a new beginning, the page does not belong here.
      if (first !== get('messages').firstChild) return;
      get('messages').prepend(...messages.map(({ payload, ...meta }) => lineOf(payload, meta)));
      get('older').hidden = !more;
    } catch {
      get('typing').textContent = 'Not loaded. Please try again.';
    }
  };

  get('form').onsubmit = async (event) => {
    event.preventDefault();
    const text = get('text').value;
    get('text').value = '';
    try {
      await room.publish(text, isForModerators(text) ? { audience: ['moderators'] } : {});
    } catch (error) {
      get('text').value ||= text;
      const isUnsent = error.code !== 'OUTCOME_UNKNOWN';
      get('typing').textContent = isUnsent ? 'Not sent. Please try again.' : 'Perhaps not sent.';
    }
  };

  // People: the users of the room, over all tabs and servers.
  room.presence.on('change', (members) => {
    get('people').replaceChildren(...members.map(({ user }) => element('li', user)));
  });

  // Typing: a room without history. A notice counts for three seconds, and goes out every two.
  const typing = fanfare.join('typing.lobby');
  const typists = new Map();
  let sentAt = 0;
  get('text').oninput = () => {
    if (Date.now() < sentAt + 2000) return;
    sentAt = Date.now();
    typing.publish(true, { echo: false }).catch(() => {});
  };
  typing.on('message', (_, { from }) => type(from, setTimeout(type, 3000, from)));
  room.on('message', (_, { from }) => {
    type(from);
    if (from === name) sentAt = 0;
  });

  function type(user, timer) {
    clearTimeout(typists.get(user));
    typists.delete(user);
    if (timer) typists.set(user, timer);
    get('typing').textContent = [...typists.keys()].map((each) => `${each} is typing…`).join(' ');
  }
}

function isForModerators(text) {
  return text.startsWith('/mods ');
}

function show(text, meta) {
  const line = lineOf(text, meta);
  get('messages').append(line);
  line.scrollIntoView({ block: 'end' });
}

function lineOf(text, meta) {
  const time = new Date(meta.timestamp).toLocaleTimeString([], { timeStyle: 'short' });
  const line = element('li', element('b', meta.from), element('span', text), element('time', time));
  line.classList.toggle('mine', meta.from === name);
  line.classList.toggle('moderators', isForModerators(text));
  return Object.assign(line, { meta });
}

function element(tag, ...content) {
  const node = document.createElement(tag);
  node.append(...content);
  return node;
}
