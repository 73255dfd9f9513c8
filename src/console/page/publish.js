// publish.js: publishes a test message to a room.

import { act } from './api.js';
import { run } from './dialog.js';
import { el, field, h, icon, pageHead } from './dom.js';
import { plural, whole } from './format.js';

/** @typedef {import('./view.js').App} App */

/**
 * @param {App} app
 * @param {{room: string, isCompact?: boolean, isFixed?: boolean, onPublished?: () => void}} options
 *   `isFixed`: the room is that of the view
 */
export function publishForm(app, { room, isCompact = false, isFixed = false, onPublished }) {
  const mayPublish = app.can('publish');
  const roomInput = h('input', {
    type: 'text',
    name: 'publish-room',
    value: room,
    placeholder: 'chat.42',
    required: true,
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const payload = h('textarea', {
    name: 'payload',
    rows: isCompact ? 2 : 5,
    spellcheck: 'false',
    'aria-label': 'Payload, JSON',
  });
  payload.value = '{ "text": "Test from the console" }';
  const fault = h('p.fault', { role: 'alert', hidden: true });
  const button = h('button.button.primary', { disabled: !mayPublish }, icon('publish'), 'Publish');
  /** @param {string} text */
  const show = (text) => {
    fault.textContent = text;
    fault.hidden = text === '';
  };
  return h(
    'form',
    {
      class: `publish${isCompact ? ' compact' : ''}`,
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        const faultText = jsonFault(payload.value);
        show(faultText);
        if (faultText !== '') return payload.focus();
        run(button, () => publish(roomInput.value.trim(), payload.value, onPublished));
      },
    },
    !isFixed && field('Room', roomInput),
    field('Payload (JSON)', payload),
    fault,
    el('div.row', button, !mayPublish && el('span.muted', 'Your key lacks the right publish.')),
  );
}

/**
 * @param {string} room @param {string} payload JSON, which is sent as it was typed
 * @param {(() => void)|undefined} onPublished
 */
async function publish(room, payload, onPublished) {
  const { offset } = await act('publish', {
    body: `{"room":${JSON.stringify(room)},"payload":${payload}}`,
  });
  onPublished?.();
  return offset === undefined
    ? `Published to ${room}.`
    : `Published to ${room} at offset ${whole(offset)}.`;
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

/** @param {App} app @returns {import('./view.js').View} */
export function publishView(app) {
  const isAllowed = app.can('broadcast');
  const payload = h('textarea', { name: 'broadcast', rows: 3, spellcheck: 'false' });
  payload.value = '{ "notice": "Maintenance at 22:00" }';
  const button = h('button.button', { disabled: !isAllowed }, 'Broadcast to everyone');
  const element = el(
    'div.narrow',
    pageHead('Publish', null, 'The message reaches all members, on every server.'),
    el('section.card.pad', el('h2', 'To a room'), publishForm(app, { room: '' })),
    el(
      'section.card.pad',
      el('h2', 'To all connections'),
      el('p.muted', 'Every client gets it, whatever its rooms are.'),
      h(
        'form.publish',
        {
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            run(button, async () => {
              const fault = jsonFault(payload.value);
              if (fault !== '') throw new Error(fault);
              const { listenerCount } = await act('broadcast', {
                body: `{"payload":${payload.value}}`,
              });
              return listenerCount === undefined
                ? 'Broadcast.'
                : `Broadcast to ${plural(listenerCount, 'connection')}.`;
            });
          },
        },
        field('Payload (JSON)', payload),
        el(
          'div.row',
          button,
          !isAllowed && el('span.muted', 'Your key lacks the right broadcast.'),
        ),
      ),
    ),
  );
  return { element, title: 'Publish' };
}
