// viewer.js: follows an answer, by the client library or by server-sent events. Copy this file.
//
// A view begins with the text that the backend has, and the position of the last part in it. Fanfare
// then replays the parts behind that position. If it cannot, the view loads the text anew.

import { Fanfare } from './client/index.js';

const RETRY_MS = 500;

/** A text that grows by parts. */
export class Text {
  text = '';
  isDone = false;

  constructor(onChange) {
    this.onChange = onChange;
  }

  /** The state of the backend. It may be ahead of the parts that arrive. */
  set({ text, isDone }) {
    this.text = text;
    this.isDone ||= isDone;
    this.onChange(this);
  }

  /** A part of the room. If a newer state contains it, it changes nothing. */
  add({ at, text, done }) {
    if (at > this.text.length) throw new Error(`a gap: ${at} behind ${this.text.length}`);
    if (at + text.length > this.text.length) this.text = this.text.slice(0, at) + text;
    this.isDone ||= done;
    this.onChange(this);
  }
}

/** Repeats a request until it succeeds. The backend may be away for a moment, too. */
async function get(path) {
  for (;;) {
    const response = await fetch(path).catch(() => null);
    if (response?.ok) return response;
    if (response?.status === 404) throw new Error('There is no such answer.');
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

const load = async (id) => (await get(`answers/${id}`)).json();
const tokenOf = async (id) => (await get(`answers/${id}/token`)).text();

/** By the client library. */
export async function followByClient(id, url, { onChange, onState }) {
  const text = new Text(onChange);
  const state = await load(id);
  text.set(state);
  const fanfare = new Fanfare(url, { token: () => tokenOf(id) });
  fanfare.on('state', onState);
  const room = fanfare.join(`ai.${id}`, {
    since: state.position,
    last: 1000,
    recoverFailed: () => load(id),
  });
  room.on('reset', (newer) => text.set(newer));
  room.on('message', (part) => text.add(part));
}

/** By server-sent events. The browser reconnects, and sends the id of its last event. */
export async function followBySse(id, url, { onChange, onState }) {
  const text = new Text(onChange);
  const state = await load(id);
  text.set(state);
  const query = new URLSearchParams({ room: `ai.${id}`, token: await tokenOf(id) });
  const { epoch, offset } = state.position ?? {};
  if (epoch !== undefined) query.set('lastEventId', `${epoch}:${offset}`);
  const source = new EventSource(`${url}/sse?${query}`);
  // Parts wait while the text is loaded.
  let queue = Promise.resolve();
  const then = (act) => {
    queue = queue.then(act);
  };
  const reload = () => then(async () => text.set(await load(id)));
  source.onopen = () => onState('connected');
  source.onerror = () => onState(source.readyState === EventSource.CLOSED ? 'closed' : 'waiting');
  source.onmessage = ({ data }) => then(() => text.add(JSON.parse(data).payload));
  source.addEventListener('resync', reload);
  source.addEventListener('joined', ({ data }) => {
    if (!JSON.parse(data).recovered) reload();
  });
}
