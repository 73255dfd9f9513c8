// state.js: the map of a room with state.
//
// The server sends keys in the order of their newest changes. So a client can continue after the
// last message, even in the middle of the state: it has all keys with older changes.

/** @import { Message, Position } from './wire.js' */

/** What each handle emits. @typedef {['change'|'reset'|'synced', ...any[]]} Event */

export class State {
  /** Values by key. @type {Map<string, any>} */
  _values = new Map();
  /** Position of the last message. @type {Position|undefined} */
  _position;
  /** Has the server sent the whole state since the last join or reset? */
  _isSynced = false;

  /**
   * @param {Message} message a push of this room, or the reply to a join
   * @returns {Event|undefined} what the handles emit now
   */
  _receive(message) {
    const { type, epoch, offset, key, payload, recovered } = message;
    const values = this._values;
    const last = this._position;
    const position = { epoch, offset };
    if (type === 'message') {
      if (offset <= /** @type {Position} */ (last).offset) return;
      this._position = position;
      message.previous = values.get(key);
      // The whole state includes tombstones of keys that this map never had.
      if (payload === null ? values.delete(key) : values.set(key, payload))
        return ['change', message];
    } else if (type === 'synced') {
      this._isSynced = true;
      this._position = position;
      return [type, position];
    } else if (type === 'joined' || type === 'reset') {
      this._isSynced = false;
      if (recovered) return;
      // The whole state follows.
      values.clear();
      this._position = { epoch, offset: 0 };
      if (last) return ['reset', values, position];
    }
  }
}
