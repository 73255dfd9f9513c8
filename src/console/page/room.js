// room.js: one room: its counts, messages as they come, its history, its members.

import { Component } from 'preact';
import { act, tail } from './api.js';
import { ActionButton } from './dialog.js';
import { clock, whole } from './format.js';
import { html } from './html.js';
import { denied, empty, hrefOf, icon, pageHead, pill } from './parts.js';
import { faultText, repeat } from './polled.js';
import { publishForm } from './publish.js';

/** @import { ApiError } from './api.js' */
/** @import { Child } from './html.js' */
/** @import { App, ViewProps } from './view.js' */

const HISTORY = 50;
const MEMBERS = 100;
/** Messages that the page keeps of a live tail. */
const MAX_SHOWN = 200;
const RECONNECT_MS = 1000;
const REFRESH_MS = 3000;

/** @typedef {Record<string, any>} Message */

/**
 * @typedef {object} RoomState
 * @property {Child} counts @property {{count: number|null, list: Child}} members
 * @property {number} published messages by this page
 * @extends {Component<ViewProps, RoomState>}
 */
export class RoomView extends Component {
  /** @type {RoomState} */
  state = { counts: null, members: { count: null, list: null }, published: 0 };
  #stop = () => {};

  componentDidMount() {
    this.#stop = repeat(async () => {
      const { app, name } = this.props;
      const counts = await readCounts(app, name);
      this.setState({ counts });
      this.setState({ members: await readMembers(app, name) });
    }, REFRESH_MS);
  }

  componentWillUnmount() {
    this.#stop();
  }

  render() {
    const { app, name } = this.props;
    const { counts, members, published } = this.state;
    const onPublished = () => this.setState({ published: published + 1 });
    return html`<div>
      <a class="back" href="#/rooms">${icon('back')}Rooms</a>
      ${pageHead(name)}
      <dl class="counts flex wrap">${counts}</dl>
      <div class="columns">
        <${MessagePanel} app=${app} room=${name} published=${published} />
        <div class="column">
          <section class="card pad">
            <h2>Publish</h2>
            ${publishForm(app, { room: name, onPublished })}
          </section>
          <section class="card pad">
            <h2>
              Members <span class="muted">${members.count === null ? '' : whole(members.count)}</span>
            </h2>
            <div class="result">${members.list}</div>
          </section>
        </div>
      </div>
    </div>`;
  }
}

/** @param {App} app @param {string} room @returns {Promise<Child>} */
async function readCounts(app, room) {
  if (!app.can('rooms')) return null;
  try {
    const { connections, users, epoch, offset, partial } = await act('room', { params: { room } });
    return [
      countEntry('Connections', html`<a href=${hrefOf('members', room)}>${whole(connections)}</a>`),
      countEntry('Users', users === undefined ? 'no presence' : whole(users)),
      offset === undefined
        ? countEntry('History', 'none kept')
        : countEntry('Last offset', whole(offset), `epoch ${epoch}`),
      partial && html`<p class="warning">A worker has not answered: the numbers may be low.</p>`,
    ];
  } catch (error) {
    return html`<div class="warning">${faultText(error)}</div>`;
  }
}

/** @param {string} name @param {Child} value @param {string} [detail] */
function countEntry(name, value, detail) {
  return html`<div><dt>${name}</dt><dd title=${detail}>${value}</dd></div>`;
}

/**
 * @param {App} app @param {string} room
 * @returns {Promise<{count: number|null, list: Child}>} `count`: null if it is unknown
 */
async function readMembers(app, room) {
  const note = (/** @type {string} */ text) => html`<p class="muted">${text}</p>`;
  if (!app.can('presence')) return { count: null, list: denied('presence') };
  try {
    const query = { limit: String(MEMBERS) };
    const answer = await act('presence', { params: { room }, query });
    const { count: total, members = null } = answer;
    if (members === null) return { count: total, list: note('Too many to list.') };
    if (members.length === 0) return { count: 0, list: note('No user is in the room.') };
    const list = html`
      <ul class="members" tabindex="0" aria-label="Members">${members.map(memberOf)}</ul>
      ${total > members.length && note(`The first ${members.length} of ${whole(total)}.`)}`;
    return { count: total, list };
  } catch (error) {
    const { code } = /** @type {ApiError} */ (error);
    const text =
      code === 'NO_PRESENCE'
        ? 'This room has no presence. FANFARE_PRESENCE names the rooms that have it.'
        : faultText(error);
    return { count: null, list: note(text) };
  }
}

/** @param {Message} member */
function memberOf({ user, info }) {
  return html`<li class="flex wrap anywhere">
    <a href=${hrefOf('users', user)}>${user}</a>
    ${info !== undefined && html`<code class="muted">${JSON.stringify(info)}</code>`}
  </li>`;
}

/**
 * History and live messages, which share one list.
 * @typedef {object} State
 * @property {Child} content of the list @property {Child} status of the tail
 * @property {boolean} isLive @property {boolean} hasHistory
 * @extends {Component<{app: App, room: string, published: number}, State>}
 */
class MessagePanel extends Component {
  /** @type {State} */
  state = { content: null, status: null, isLive: false, hasHistory: false };
  /** The live tail. @type {AbortController|null} */
  #live = null;

  componentDidMount() {
    this.#refresh();
  }

  /** @param {{published: number}} before */
  componentDidUpdate({ published }) {
    if (published !== this.props.published) this.#refresh();
  }

  componentWillUnmount() {
    this.#live?.abort();
  }

  #refresh() {
    if (!this.props.app.can('history')) this.setState({ content: denied('history') });
    else if (this.#live === null) this.#showHistory();
  }

  #stop = () => {
    this.#live?.abort();
    this.#live = null;
    this.setState({ isLive: false, status: null });
  };

  #start = async () => {
    const controller = new AbortController();
    const { signal } = controller;
    this.#live = controller;
    const text = 'New messages of this room appear here.';
    const content = empty('rooms', 'Waiting for messages', text);
    this.setState({ isLive: true, content });
    const receive = this.#receiver();
    while (!signal.aborted) {
      this.setState({ status: pill('plain', 'connecting') });
      try {
        await tail(this.props.room, signal, receive);
      } catch (error) {
        if (signal.aborted) return;
        if (/** @type {ApiError} */ (error).status === 403) {
          this.#stop();
          return this.setState({ content: empty('key', 'Not permitted', faultText(error)) });
        }
      }
      if (!signal.aborted) this.setState({ status: pill('warn', 'reconnecting') });
      await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
    }
  };

  /** @returns {Parameters<typeof tail>[2]} shows the messages of one tail, the latest first */
  #receiver() {
    let left = 0;
    let received = 0;
    /** @type {Child[]} */
    let shown = [];
    return (part) => {
      left += part.left;
      const note = html`<span class="muted">${whole(left)} left out: too many a second</span>`;
      this.setState({ status: [pill('good', 'live'), left > 0 && note] });
      if (part.lines.length === 0) return;
      const messages = part.lines.map(({ text, bytes }) =>
        messageArticle(parsed(text, bytes), ++received),
      );
      shown = [...messages.reverse(), ...shown].slice(0, MAX_SHOWN);
      this.setState({ content: shown });
    };
  }

  #showHistory = async () => {
    this.#stop();
    const { room } = this.props;
    try {
      const query = { limit: String(HISTORY) };
      const { messages } = await act('history', { params: { room }, query });
      const none = 'Nothing was published, or it has expired.';
      const content =
        messages.length === 0
          ? empty('rooms', 'The history is empty', none)
          : [...messages].reverse().map((one) => messageArticle(one));
      this.setState({ content, hasHistory: true });
    } catch (error) {
      const { code } = /** @type {ApiError} */ (error);
      const text =
        'Start the live tail to see new messages. FANFARE_HISTORY names the rooms that keep some.';
      const content =
        code === 'NO_HISTORY'
          ? empty('rooms', 'This room keeps no history', text)
          : empty('alert', 'The history cannot be read', faultText(error));
      this.setState({ content, hasHistory: false });
    }
  };

  #deleteHistory = async () => {
    const { room } = this.props;
    await act('delete_history', { params: { room } });
    await this.#showHistory();
    return `The history of ${room} is deleted.`;
  };

  render() {
    const { app, room } = this.props;
    const { content, status, isLive, hasHistory } = this.state;
    const disabled = !app.can('history');
    const question = {
      title: `Delete the history of ${room}?`,
      text: 'Members are asked to load their state again. Clients that come back later cannot recover what they missed.',
      action: 'Delete history',
    };
    return html`<section class="card message-card">
      <header class="card-head flex wrap">
        <h2>Messages</h2>
        <div class="tail-state tiny flex" role="status">${status}</div>
        <div class="row flex wrap">
          ${
            hasHistory &&
            app.can('delete') &&
            html`<${ActionButton} class="quiet" question=${question} action=${this.#deleteHistory}>
              Delete history
            <//>`
          }
          <button class="button" disabled=${disabled} onclick=${this.#showHistory}>History</button>
          <button
            class="button" disabled=${disabled} aria-pressed=${isLive}
            onclick=${isLive ? this.#stop : this.#start}
          >${icon(isLive ? 'stop' : 'play')}${isLive ? 'Stop' : 'Live tail'}</button>
        </div>
      </header>
      <div class="messages" tabindex="0" role="region" aria-label="Messages">${content}</div>
    </section>`;
  }
}

/** @param {string} text @param {number} bytes of the whole text @returns {Message} */
function parsed(text, bytes) {
  try {
    return JSON.parse(text);
  } catch {
    return { payload: `${text}…`, note: `${whole(bytes)} bytes, cut` };
  }
}

/** @param {Message} message @param {number} [key] of a live one */
function messageArticle({ type, payload, from, timestamp, offset, event, member, note }, key) {
  const isEvent = type === 'presence' || type === 'resync';
  const text = isEvent
    ? `${type} ${event ?? ''} ${member === undefined ? '' : JSON.stringify(member)}`
    : typeof payload === 'string'
      ? JSON.stringify(payload)
      : JSON.stringify(payload, null, 1).replace(/\n\s*/g, ' ');
  return html`<article key=${key} class="message ${isEvent ? 'event' : ''}">
    <div class="message-meta muted flex">
      ${timestamp > 0 && html`<time>${clock(timestamp)}</time>`}
      ${offset !== undefined && html`<span class="offset">#${whole(offset)}</span>`}
      ${from !== undefined && html`<span class="from anywhere">${from === '' ? 'HTTP API' : from}</span>`}
      ${note !== undefined && html`<span>${note}</span>`}
    </div>
    <code>${text}</code>
  </article>`;
}
