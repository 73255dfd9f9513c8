// publish.js: publishes a test message to a room, or to all connections.

import { Component } from 'preact';
import { act } from './api.js';
import { runWithNotice } from './dialog.js';
import { plural, whole } from './format.js';
import { html } from './html.js';
import { field, icon, lacks, pageHead } from './parts.js';

/** @import { App, ViewProps } from './view.js' */

/**
 * A form that sends a payload as it was typed. Its children are fields before it.
 * @typedef {object} Props
 * @property {boolean} isAllowed @property {string} right that its key has to have
 * @property {string} initial the payload @property {number} rows of it
 * @property {boolean} [isCompact] @property {import('./html.js').Child} label of the button
 * @property {string} [tone] of the button
 * @property {(payload: string, fields: HTMLFormControlsCollection) => Promise<string>} send
 *   resolves with the text of a notice
 * @extends {Component<Props, {fault: string, isBusy: boolean}>}
 */
class PayloadForm extends Component {
  state = { fault: '', isBusy: false };

  #submit = (/** @type {Event & {currentTarget: HTMLFormElement}} */ event) => {
    event.preventDefault();
    const { elements } = event.currentTarget;
    const payload = /** @type {HTMLTextAreaElement} */ (elements.namedItem('payload'));
    const fault = jsonFault(payload.value);
    this.setState({ fault });
    if (fault !== '') return payload.focus();
    runWithNotice(this, () => this.props.send(payload.value, elements));
  };

  render() {
    const { right, isAllowed, initial, rows, isCompact, label, tone, children } = this.props;
    const { fault, isBusy } = this.state;
    const payload = html`<textarea
      name="payload" rows=${rows} spellcheck=${false} defaultValue=${initial}
    />`;
    return html`<form class="publish ${isCompact ? 'compact' : ''}" onsubmit=${this.#submit}>
      ${children}
      ${field('Payload (JSON)', payload)}
      <p class="fault" role="alert" hidden=${fault === ''}>${fault}</p>
      <div class="row flex wrap">
        <button
          class="button ${tone}" disabled=${!isAllowed || isBusy} aria-busy=${isBusy || null}
        >${label}</button>
        ${!isAllowed && html`<span class="muted">${lacks(right)}</span>`}
      </div>
    </form>`;
  }
}

/** @param {string} text @returns {string} '' if it is JSON */
function jsonFault(text) {
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    return `Not JSON: ${/** @type {Error} */ (error).message}.`;
  }
}

/**
 * @param {App} app
 * @param {{room?: string, isCompact?: boolean, onPublished?: () => void}} options `room`: that of
 *   the view; absent: the form asks for it
 */
export function publishForm(app, { room, isCompact = false, onPublished }) {
  const input = html`<input
    type="text" name="publish-room" placeholder="chat.42" required autocomplete="off" spellcheck=${false}
  />`;
  /** @type {Props['send']} */
  const send = async (payload, fields) => {
    const asked = /** @type {HTMLInputElement|null} */ (fields.namedItem('publish-room'));
    const name = room ?? asked?.value.trim() ?? '';
    const body = `{"room":${JSON.stringify(name)},"payload":${payload}}`;
    const { offset } = await act('publish', { body });
    onPublished?.();
    return `Published to ${name}${offset === undefined ? '' : ` at offset ${whole(offset)}`}.`;
  };
  return html`<${PayloadForm}
    right="publish" isAllowed=${app.can('publish')} send=${send}
    rows=${isCompact ? 2 : 5} initial='{ "text": "Test from the console" }'
    isCompact=${isCompact} label=${[icon('publish'), 'Publish']} tone="primary"
  >${room === undefined && field('Room', input)}<//>`;
}

/** @param {string} payload */
async function broadcast(payload) {
  const { listenerCount } = await act('broadcast', { body: `{"payload":${payload}}` });
  return listenerCount === undefined
    ? 'Broadcast.'
    : `Broadcast to ${plural(listenerCount, 'connection')}.`;
}

/** @param {ViewProps} props */
export function PublishView({ app }) {
  return html`<div class="narrow">
    ${pageHead('Publish', 'The message reaches all members, on every server.')}
    <section class="card pad"><h2>To a room</h2>${publishForm(app, {})}</section>
    <section class="card pad">
      <h2>To all connections</h2>
      <p class="muted">Every client gets it, whatever its rooms are.</p>
      <${PayloadForm}
        right="broadcast" isAllowed=${app.can('broadcast')} send=${broadcast}
        rows=${3} initial='{ "notice": "Maintenance at 22:00" }' label="Broadcast to everyone"
      />
    </section>
  </div>`;
}
