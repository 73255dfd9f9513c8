// index.js: `fanfare-client/react`: hooks for React 18 and later. What they show is in views.js.

'use client';

import {
  createContext,
  createElement,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useSyncExternalStore,
} from 'react';
import { actionsOf, connectionOf, messagesOf, stateOf, usersOf } from '../views.js';

/** @import { ReactNode } from 'react' */
/** @import { Fanfare } from '../fanfare.js' */
/** @import { JoinOptions } from '../room.js' */
/** @import { RoomPayload } from '../rooms.js' */
/** @import { ConnectionView, Messages, MessagesOptions, Present } from '../views.js' */
/** @import { RoomActions, RoomListeners, View, ViewOptions } from '../views.js' */

const Context = createContext(/** @type {Fanfare|undefined} */ (undefined));

/**
 * Gives a client to the hooks below it. It does not close the client.
 * @param {{client: Fanfare, children?: ReactNode}} props @returns {ReactNode}
 */
export function FanfareProvider({ client, children }) {
  return createElement(Context.Provider, { value: client }, children);
}

/** @returns {Fanfare} the client of the provider @throws {Error} without a provider */
export function useFanfare() {
  const fanfare = useContext(Context);
  if (!fanfare) throw new Error('There is no <FanfareProvider client={…}> around this component');
  return fanfare;
}

/**
 * @template Value @template [Selected=Value]
 * @param {(fanfare: Fanfare, name: any, options?: any) => View<Value>} viewOf
 * @param {string|null} [name] @param {object} [options] @param {(value: any) => Selected} [select]
 * @returns {any}
 */
function useView(viewOf, name, options, select) {
  const fanfare = useFanfare();
  const key = JSON.stringify(options);
  const view = useMemo(() => viewOf(fanfare, name, options), [viewOf, fanfare, name, key]);
  const get = useMemo(() => {
    /** @type {Value|undefined} */
    let from;
    /** @type {any} */
    let selected;
    return () => {
      const value = view.get();
      if (value !== from) selected = select && value ? select(value) : value;
      from = value;
      return selected;
    };
  }, [view, select]);
  return useSyncExternalStore(view.subscribe, get, () => view.first);
}

/**
 * Joins a room while the component is mounted. `null`: no room.
 * @template {string} Name @overload
 * @param {Name|null} name
 * @param {JoinOptions & RoomListeners<RoomPayload<Name>>} [options] its newest functions are called
 * @returns {RoomActions<RoomPayload<Name>>} the same object until the name changes
 */
/**
 * @template Payload @overload
 * @param {string|null} name
 * @param {JoinOptions & RoomListeners<NoInfer<Payload>>} [options] @returns {RoomActions<Payload>}
 */
/**
 * @param {string|null} name @param {JoinOptions & RoomListeners<any>} [options]
 * @returns {RoomActions}
 */
export function useRoom(name, options = {}) {
  const fanfare = useFanfare();
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  const room = useMemo(() => actionsOf(fanfare, name), [fanfare, name]);
  const key = JSON.stringify(options, (_, value) => (typeof value === 'function' ? 1 : value));
  useEffect(() => room.enter(() => latest.current), [room, key]);
  return room;
}

/**
 * The newest messages of a room. `null`: of no room.
 * @template {string} Name @overload
 * @param {Name|null} name @param {MessagesOptions<RoomPayload<Name>> & ViewOptions} [options]
 * @returns {Messages<RoomPayload<Name>>}
 */
/**
 * @template Payload @overload
 * @param {string|null} name @param {MessagesOptions<NoInfer<Payload>> & ViewOptions} [options]
 * @returns {Messages<Payload>}
 */
/** @param {string|null} name @param {MessagesOptions<any> & ViewOptions} [options] */
export function useMessages(name, options) {
  return useView(messagesOf, name, options);
}

/**
 * The values of a room with state; undefined until they are complete. `null`: of no room.
 * @template {string} Name @overload
 * @param {Name|null} name
 * @param {ViewOptions} [options] @returns {ReadonlyMap<string, RoomPayload<Name>>|undefined}
 */
/**
 * With `select`, the component is rendered when the result changes.
 * @template {string} Name @template Selected @overload
 * @param {Name|null} name
 * @param {ViewOptions & {
 *   select: (state: ReadonlyMap<string, RoomPayload<Name>>) => Selected,
 * }} options
 * @returns {Selected|undefined}
 */
/**
 * @template Payload @overload
 * @param {string|null} name @param {ViewOptions} [options]
 * @returns {ReadonlyMap<string, Payload>|undefined}
 */
/**
 * @param {string|null} name @param {ViewOptions & {select?: (state: any) => any}} [options]
 * @returns {any}
 */
export function useRoomState(name, { select, ...options } = {}) {
  return useView(stateOf, name, options, select);
}

/**
 * The users of a room with presence. `null`: of no room.
 * @param {string|null} name @param {ViewOptions} [options] @returns {Present}
 */
export function usePresence(name, options) {
  return useView(usersOf, name, options);
}

/** The state of the connection. @returns {ConnectionView} */
export function useConnection() {
  return useView(connectionOf);
}
