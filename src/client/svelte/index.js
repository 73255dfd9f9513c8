// index.js: `fanfare-client/svelte`: values for Svelte 5. What they show is in views.js.

import { getContext, onMount, setContext } from 'svelte';
import { createSubscriber } from 'svelte/reactivity';
import { toStore } from 'svelte/store';
import { actionsOf, connectionOf, messagesOf, stateOf, usersOf } from '../views.js';

/** @import { Fanfare } from '../fanfare.js' */
/** @import { JoinOptions } from '../room.js' */
/** @import { RoomPayload } from '../rooms.js' */
/** @import { ConnectionView, Messages, MessagesOptions, Present } from '../views.js' */
/** @import { RoomActions, RoomListeners, View, ViewOptions } from '../views.js' */

/**
 * A value, or a function that reads it from reactive state.
 * @template Value @typedef {Value|(() => Value)} Given
 */

/**
 * `current` is reactive: read it in markup, in `$derived` or in an effect.
 * @template Value @typedef {{readonly current: Value}} Current
 */

const KEY = Symbol('fanfare');

/** Gives a client to the components below this one. @param {Fanfare} fanfare */
export function setFanfare(fanfare) {
  setContext(KEY, fanfare);
}

/** @returns {Fanfare} the client of a component above @throws {Error} if none gave one */
export function getFanfare() {
  const fanfare = getContext(KEY);
  if (!fanfare) throw new Error('There is no client: call setFanfare(fanfare) in a layout');
  return fanfare;
}

/** @template Value @param {Given<Value>} given @returns {Value} */
const valueNow = (given) =>
  typeof given === 'function' ? /** @type {() => Value} */ (given)() : given;

/**
 * @template Value
 * @param {(fanfare: Fanfare, name: any, options?: any) => View<Value>} viewOf
 * @param {Given<string|null>} [name] @param {object} [options] @returns {Current<any>}
 */
function useView(viewOf, name, options) {
  const fanfare = getFanfare();
  /** @type {string|null|undefined} */
  let shown;
  /** @type {View<Value>} */
  let view;
  /** @type {() => void} */
  let follow;
  return {
    get current() {
      const now = valueNow(name);
      if (!view || now !== shown) {
        shown = now;
        view = viewOf(fanfare, now, options);
        follow = createSubscriber(view.subscribe);
      }
      follow();
      return view.get();
    },
  };
}

/**
 * Joins a room while the component is mounted. `null`: no room.
 * @template {string} Name @overload
 * @param {Given<Name|null>} name
 * @param {Given<JoinOptions & RoomListeners<RoomPayload<Name>>>} [options]
 * @returns {RoomActions<RoomPayload<Name>>}
 */
/**
 * @template Payload @overload
 * @param {Given<string|null>} name
 * @param {Given<JoinOptions & RoomListeners<NoInfer<Payload>>>} [options]
 * @returns {RoomActions<Payload>}
 */
/**
 * @param {Given<string|null>} name @param {Given<JoinOptions & RoomListeners<any>>} [options]
 * @returns {RoomActions}
 */
export function useRoom(name, options = {}) {
  const fanfare = getFanfare();
  let room = actionsOf(fanfare, valueNow(name));
  // The effect of a store, because runes exist only in files that Svelte compiles.
  onMount(() => {
    let leave = () => {};
    const given = toStore(() => ({ now: valueNow(name), latest: valueNow(options) }));
    const stop = given.subscribe(({ now, latest }) => {
      leave();
      room = actionsOf(fanfare, now);
      leave = room.enter(() => latest);
    });
    return () => {
      stop();
      leave();
    };
  });
  return {
    publish: (...args) => room.publish(...args),
    history: (...args) => room.history(...args),
  };
}

/**
 * The newest messages of a room. `null`: of no room.
 * @template {string} Name @overload
 * @param {Given<Name|null>} name
 * @param {MessagesOptions<RoomPayload<Name>> & ViewOptions} [options]
 * @returns {Current<Messages<RoomPayload<Name>>>}
 */
/**
 * @template Payload @overload
 * @param {Given<string|null>} name
 * @param {MessagesOptions<NoInfer<Payload>> & ViewOptions} [options]
 * @returns {Current<Messages<Payload>>}
 */
/** @param {Given<string|null>} name @param {MessagesOptions<any> & ViewOptions} [options] */
export function useMessages(name, options) {
  return useView(messagesOf, name, options);
}

/**
 * The values of a room with state; undefined until they are complete. `null`: of no room.
 * @template {string} Name @overload
 * @param {Given<Name|null>} name @param {ViewOptions} [options]
 * @returns {Current<ReadonlyMap<string, RoomPayload<Name>>|undefined>}
 */
/**
 * @template Payload @overload
 * @param {Given<string|null>} name @param {ViewOptions} [options]
 * @returns {Current<ReadonlyMap<string, Payload>|undefined>}
 */
/** @param {Given<string|null>} name @param {ViewOptions} [options] */
export function useRoomState(name, options) {
  return useView(stateOf, name, options);
}

/**
 * The users of a room with presence. `null`: of no room.
 * @param {Given<string|null>} name @param {ViewOptions} [options]
 * @returns {Current<Present>}
 */
export function usePresence(name, options) {
  return useView(usersOf, name, options);
}

/** The state of the connection. @returns {Current<ConnectionView>} */
export function useConnection() {
  return useView(connectionOf);
}
