// dialog.js: questions before an action that cannot be undone, the action, and a notice after it.

import { Component, render } from 'preact';
import { html } from './html.js';
import { icon } from './parts.js';
import { faultText } from './polled.js';

const NOTICE_MS = 6000;

/** The area of the page. @type {Notices|null} */
let notices = null;

/**
 * Short notices, of which a screen reader hears each.
 * @typedef {{id: number, tone: 'good'|'bad', text: string}} Notice
 * @extends {Component<{}, {shown: Notice[]}>}
 */
export class Notices extends Component {
  state = { shown: /** @type {Notice[]} */ ([]) };
  #count = 0;

  componentDidMount() {
    notices = this;
  }

  /** @param {Notice['tone']} tone @param {string} text */
  notify(tone, text) {
    const notice = { id: ++this.#count, tone, text };
    this.setState(({ shown }) => ({ shown: [...shown, notice] }));
    const remove = () =>
      this.setState(({ shown }) => ({ shown: shown.filter((one) => one !== notice) }));
    setTimeout(remove, NOTICE_MS);
  }

  render() {
    return html`<div class="notices" role="status" aria-live="polite">
      ${this.state.shown.map(
        ({ id, tone, text }) => html`<div key=${id} class="notice flex anywhere ${tone}">
          ${icon(tone === 'good' ? 'check' : 'alert')}<span>${text}</span>
        </div>`,
      )}
    </div>`;
  }
}

/** @typedef {{title: string, text: string, action: string}} Question `action`: of the button */

/** @param {Question} question @returns {Promise<boolean>} */
function confirmed({ title, text, action }) {
  const holder = document.body.appendChild(document.createElement('div'));
  const answer = (/** @type {string} */ value) => () =>
    holder.querySelector('dialog')?.close(value);
  return new Promise((resolve) => {
    const onclose = (/** @type {Event & {currentTarget: HTMLDialogElement}} */ event) => {
      resolve(event.currentTarget.returnValue === 'yes');
      render(null, holder);
      holder.remove();
    };
    const dialog = html`<dialog
      aria-labelledby="dialog-title"
      aria-describedby="dialog-text"
      onclose=${onclose}
    >
      <h2 class="anywhere" id="dialog-title">${title}</h2>
      <p id="dialog-text">${text}</p>
      <div class="row flex wrap">
        <button class="button" autofocus onclick=${answer('')}>Cancel</button>
        <button class="button danger" onclick=${answer('yes')}>${action}</button>
      </div>
    </dialog>`;
    render(dialog, holder);
    holder.querySelector('dialog')?.showModal();
  });
}

/**
 * Runs an action. Meanwhile the component's button waits; a fault becomes a notice.
 * @param {Component<any, {isBusy: boolean}>} component
 * @param {() => Promise<string>} action resolves with the text of the notice; '' for none
 */
export async function runWithNotice(component, action) {
  component.setState({ isBusy: true });
  try {
    const text = await action();
    if (text !== '') notices?.notify('good', text);
  } catch (error) {
    notices?.notify('bad', faultText(error));
  } finally {
    component.setState({ isBusy: false });
  }
}

/**
 * A button with an action, perhaps behind a question.
 * @typedef {object} Props
 * @property {() => Promise<string>} action as for `runWithNotice` @property {Question} [question]
 * @property {boolean} [disabled] @property {string} [class]
 * @extends {Component<Props, {isBusy: boolean}>}
 */
export class ActionButton extends Component {
  #click = async () => {
    const { question, action } = this.props;
    if (question === undefined || (await confirmed(question))) await runWithNotice(this, action);
  };

  render() {
    const { action: _, question, disabled = false, class: name, children, ...others } = this.props;
    const { isBusy = false } = this.state;
    return html`<button
      ...${others}
      class="button ${name ?? ''}"
      disabled=${disabled || isBusy}
      aria-busy=${isBusy || null}
      onclick=${this.#click}
    >${children}</button>`;
  }
}
