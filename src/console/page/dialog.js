// dialog.js: questions before an action that cannot be undone, and short notices after it.

import { el, h, icon } from './dom.js';

const NOTICE_MS = 6000;

export const noticeArea = h('div.notices', { role: 'status', 'aria-live': 'polite' });

/** @param {'good'|'bad'} tone @param {string} text */
function notify(tone, text) {
  const notice = h(
    'div',
    { class: `notice ${tone}` },
    icon(tone === 'good' ? 'check' : 'alert'),
    el('span', text),
  );
  noticeArea.append(notice);
  setTimeout(() => notice.remove(), NOTICE_MS);
}

/**
 * @param {{title: string, text: string, action: string}} question `action`: the text of the button
 * @returns {Promise<boolean>}
 */
export function confirmed({ title, text, action }) {
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'dialog-title', 'aria-describedby': 'dialog-text' },
    h('h2', { id: 'dialog-title' }, title),
    h('p', { id: 'dialog-text' }, text),
    el(
      'div.actions',
      h('button.button', { autofocus: true, onclick: () => dialog.close() }, 'Cancel'),
      h('button.button.danger', { onclick: () => dialog.close('yes') }, action),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
  });
}

/**
 * Runs an action of a button: the button waits, and a fault becomes a notice.
 * @param {HTMLButtonElement} button
 * @param {() => Promise<string>} action resolves with the text of the notice; '' for none
 */
export async function run(button, action) {
  button.disabled = true;
  button.setAttribute('aria-busy', 'true');
  try {
    const text = await action();
    if (text !== '') notify('good', text);
  } catch (error) {
    notify('bad', textOf(error));
  } finally {
    button.disabled = false;
    button.removeAttribute('aria-busy');
  }
}

/** @param {unknown} error @returns {string} for people, as the API names fields */
export function textOf(error) {
  return /** @type {Error} */ (error).message;
}
