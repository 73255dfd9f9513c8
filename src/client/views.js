// views.js: what components show of a room or of the connection, each a value that changes. The
// bindings for React, Vue and Svelte give them the form of their framework.
//
// A view joins its room when the first component subscribes, and leaves after the last. Components
// with the same client, room and options share it, so one that is mounted later shows the value of
// the others at once. On a server nothing subscribes, so nothing connects.

/** @import { Fanfare, State, StateDetail } from './fanfare.js' */
/** @import { JoinOptions, Room, RoomEvents, RoomMessage } from './room.js' */

/**
 * @template Value
 * @typedef {object} View
 * @property {Value} first before anything is known, and on a server
 * @property {() => Value} get the same value until it changes
 * @property {(onChange: () => void) => () => void} subscribe returns a function that ends it
 */

/** @typedef {{value: any, listeners: Set<() => void>, stop?: () => void}} Shared */

/** @typedef {{presence?: JoinOptions['presence']}} ViewOptions as for `join` */

/**
 * @template Payload
 * @typedef {object} Messages
 * @property {readonly RoomMessage<Payload>[]} messages oldest first
 * @property {boolean} hasOlder may the room keep older ones than the first shown?
 * @property {(limit?: number) => Promise<void>} loadOlder puts a page of older messages, 50 by
 *   default, before those shown; rejects with a FanfareError
 */

/**
 * @template Payload
 * @typedef {object} MessagesOptions
 * @property {number} [last] begins with this many of the newest messages; 50 by default
 * @property {number} [max] shows at most this many; 1,000 by default
 * @property {(position: import('./wire.js').Position|undefined) =>
 *   readonly RoomMessage<Payload>[]|void|Promise<readonly RoomMessage<Payload>[]|void>
 * } [recoverFailed] the messages to show when some are missing; by default, those of the room's
 *   history. Views that components share use the function of the first
 */

/** @typedef {import('./presence.js').Member} Member */
/** @typedef {{readonly members: readonly Member[], readonly count: number}} Present */
/** @typedef {Readonly<{state: State} & StateDetail>} ConnectionView */

/**
 * Listeners for the events of a room: `onMessage` for `message`.
 * @template Payload
 * @typedef {{[Name in Exclude<keyof RoomEvents<Payload>, '_refused'|'left'> as
 *   `on${Capitalize<Name>}`]?: (...args: RoomEvents<Payload>[Name]) => void}} RoomListeners
 */

/**
 * Views that have subscribers, by kind, room and options.
 * @type {WeakMap<Fanfare, Map<string, Shared>>}
 */
const shared = new WeakMap();

/**
 * @template Value
 * @param {Fanfare} fanfare
 * @param {[kind: string, room?: string|null, options?: object]} key functions do not count
 * @param {{readonly value: Value}} idle the value without subscribers
 * @param {(update: (read: (former: Value) => Value) => void) => () => void} start follows the
 *   source, and returns a function that ends this. What changes in one turn of the event loop, as
 *   in a replay, is read and shown once
 * @param {Value} [first]
 * @returns {View<Value>}
 */
function viewOf(fanfare, key, idle, start, first = idle.value) {
  const views = shared.get(fanfare) ?? new Map();
  shared.set(fanfare, views);
  const id = JSON.stringify(key);
  return {
    first,
    get: () => (views.get(id) ?? idle).value,
    subscribe(onChange) {
      if (key[1] === null) return () => {};
      /** @type {Shared} */
      let view = views.get(id);
      if (!view) {
        view = { value: idle.value, listeners: new Set() };
        views.set(id, view);
        /** @type {((former: Value) => Value)|undefined} */
        let latest;
        view.stop = start((read) => {
          if (!latest)
            setTimeout(() => {
              const value = latest?.(view.value);
              latest = undefined;
              if (value === view.value) return;
              view.value = value;
              for (const listener of [...view.listeners]) listener();
            }, 0);
          latest = read;
        });
      }
      view.listeners.add(onChange);
      return () => {
        view.listeners.delete(onChange);
        // Components that come and go in one turn keep the room and the value.
        queueMicrotask(() => {
          if (view.listeners.size || views.get(id) !== view) return;
          views.delete(id);
          view.stop?.();
        });
      };
    },
  };
}

/**
 * The newest messages of a room.
 * @template [Payload=any]
 * @param {Fanfare} fanfare @param {string} name
 * @param {MessagesOptions<Payload> & ViewOptions} [options]
 * @returns {View<Messages<Payload>>}
 */
export function messagesOf(fanfare, name, options = {}) {
  let { last = 50, max = 1000 } = options;
  /** @type {Messages<Payload>} */
  const value = { messages: [], hasOlder: false, loadOlder: async () => {} };
  return viewOf(fanfare, ['messages', name, options], { value }, (update) => {
    /** @type {RoomMessage<Payload>[]} */
    const list = [];
    let hasFirst = false;
    const show = () =>
      update(() => {
        if (list.splice(0, list.length - max).length) hasFirst = false;
        // In a plain room messages have no offset.
        const hasOlder = !hasFirst && (list[0]?.offset ?? 1) > 1;
        return { messages: [...list], hasOlder, loadOlder };
      });
    /** @param {import('./room.js').HistoryOptions} query */
    const read = async (query) => {
      let page = await room.history(query);
      // All messages of this page are for others.
      while (page.next) page = await room.history({ ...query, before: page.next });
      return page;
    };
    const loadOlder = async (limit = 50) => {
      const [before] = list;
      const page = before && (await read({ before, limit }));
      // A page may have been asked for twice, and the list may have begun anew.
      if (!page || before !== list[0]) return;
      max += page.messages.length;
      list.unshift(...page.messages);
      hasFirst = !page.more;
      show();
    };
    /** @type {Room<Payload>} */
    const room = fanfare.join(name, {
      // A plain room keeps no messages, so those shown stay. Messages after the position are live.
      recoverFailed: async (position) =>
        position &&
        (last ? (await read({ limit: last })).messages : []).filter(
          ({ offset = 0 }) => offset <= position.offset,
        ),
      ...options,
      last,
    });
    room.on('reset', (newest) => {
      if (newest) {
        list.splice(0, list.length, ...newest);
        hasFirst = false;
      }
      show();
    });
    room.on('message', (payload, meta) => {
      list.push({ payload, ...meta });
      show();
    });
    return () => room.leave();
  });
}

/**
 * The values of a room with state: undefined until they are complete, then a new Map after each
 * change.
 * @template [Payload=any]
 * @param {Fanfare} fanfare @param {string} name @param {ViewOptions} [options]
 * @returns {View<ReadonlyMap<string, Payload>|undefined>}
 */
export function stateOf(fanfare, name, options) {
  /** @type {{value: ReadonlyMap<string, Payload>|undefined}} */
  const idle = { value: undefined };
  return viewOf(fanfare, ['state', name, options], idle, (update) => {
    const room = fanfare.join(name, options);
    let isWhole = false;
    let isNew = true;
    // Until the values are complete, the former ones stay.
    const show = () =>
      update((former) => {
        if (!isWhole || !isNew) return former;
        isNew = false;
        return new Map(room.state);
      });
    const change = () => {
      isNew = true;
      show();
    };
    room.on('change', change);
    room.on('reset', () => {
      isWhole = false;
      change();
    });
    room.on('synced', () => {
      isWhole = true;
      show();
    });
    return () => room.leave();
  });
}

/** @type {{value: Present}} */
const NOBODY = { value: { members: [], count: 0 } };

/**
 * The users of a room.
 * @param {Fanfare} fanfare @param {string} name @param {ViewOptions} [options]
 * @returns {View<Present>}
 */
export function usersOf(fanfare, name, options) {
  return viewOf(fanfare, ['users', name, options], NOBODY, (update) => {
    const room = fanfare.join(name, options);
    const show = () =>
      update((former) => {
        const { members, count } = room.presence;
        const value = { members, count };
        // The list is read again after each reconnect.
        return JSON.stringify(value) === JSON.stringify(former) ? former : value;
      });
    room.presence.on('change', show);
    show();
    return () => room.leave();
  });
}

/** @type {ConnectionView} */
const IDLE = { state: 'idle' };

/** The state of the connection. @param {Fanfare} fanfare @returns {View<ConnectionView>} */
export function connectionOf(fanfare) {
  const { state } = fanfare;
  return viewOf(
    fanfare,
    ['connection'],
    { value: { state } },
    (update) => {
      // It may have changed since the component was rendered.
      update((former) => (former.state === fanfare.state ? former : { state: fanfare.state }));
      return fanfare.on('state', (state, detail) => update(() => ({ state, ...detail })));
    },
    IDLE,
  );
}

/**
 * What a component does in a room while it is mounted. Before and afterwards its calls reject with
 * `CLOSED`.
 * @template [Payload=any]
 * @typedef {{publish: Room<Payload>['publish'], history: Room<Payload>['history']}} RoomActions
 */

/**
 * A room that a component joins for itself.
 * @template [Payload=any]
 * @param {Fanfare} fanfare @param {string|null} name
 * @returns {RoomActions<Payload> & {enter: (
 *   latest: () => JoinOptions & RoomListeners<Payload>,
 * ) => () => void}} `enter` joins with these options, whose newest functions are called. It returns
 *   a function that leaves
 */
export function actionsOf(fanfare, name) {
  /** @type {any} */
  let room;
  const call =
    (/** @type {'publish'|'history'} */ method) =>
    async (/** @type {unknown[]} */ ...args) => {
      if (!room) throw new Error(`${method}: the component is not mounted`);
      return room[method](...args);
    };
  return {
    publish: call('publish'),
    history: call('history'),
    enter(latest) {
      if (name === null) return () => {};
      const options = /** @type {any} */ ({ ...latest() });
      /** @type {any} */
      const own = fanfare.join(name, options);
      room = own;
      for (const key in options) {
        if (typeof options[key] !== 'function') continue;
        const newest = (/** @type {unknown[]} */ ...args) =>
          /** @type {any} */ (latest())[key]?.(...args);
        if (key.startsWith('on')) own.on(key[2].toLowerCase() + key.slice(3), newest);
        else options[key] = newest;
      }
      // With the views of the same component, so that the room is left once.
      return () => queueMicrotask(() => own.leave());
    },
  };
}
