// polled.js: reads of the server that are repeated, and the views that show them.

import { Component } from 'preact';
import { html } from './html.js';
import { empty } from './parts.js';

/** @import { Child } from './html.js' */
/** @import { ViewProps } from './view.js' */

const REFRESH_MS = 3000;

/**
 * Runs a task now, and again some time after each end of it.
 * @param {() => Promise<void>} task @param {number} pauseMs @returns {() => void} ends it
 */
export function repeat(task, pauseMs) {
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;
  let isOver = false;
  const turn = async () => {
    await task();
    if (!isOver) timer = setTimeout(turn, pauseMs);
  };
  turn();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

/**
 * A view of one read of the server: a head, and what it resolves with or why it failed.
 * @extends {Component<ViewProps, {shown: Child}>}
 */
export class PolledView extends Component {
  state = { shown: /** @type {Child} */ (null) };
  /** The title if a read fails. */
  fault = '';
  /** Those of the element around the result. @type {Record<string, string>} */
  attributes = {};
  /** Between two reads; null: it is read once, and by `reload`. @type {number|null} */
  pauseMs = REFRESH_MS;
  #stop = () => {};

  componentDidMount() {
    if (this.pauseMs === null) this.reload();
    else this.#stop = repeat(this.reload, this.pauseMs);
  }

  componentWillUnmount() {
    this.#stop();
  }

  /** @abstract @returns {Promise<Child>} */
  async read() {
    return null;
  }

  reload = async () => {
    try {
      this.setState({ shown: await this.read() });
    } catch (error) {
      this.setState({ shown: empty('alert', this.fault, faultText(error)) });
    }
  };

  /** @abstract @returns {Child} */
  head() {
    return null;
  }

  render() {
    return html`<div>
      ${this.head()}
      <div class="result" ...${this.attributes}>${this.state.shown}</div>
    </div>`;
  }
}

/** @param {unknown} error @returns {string} for people, as the API names fields */
export function faultText(error) {
  return /** @type {Error} */ (error).message;
}
