// index.js: `fanfare-client/vue`: composables for Vue 3. What they show is in views.js.

import { computed, inject, shallowRef, toValue, triggerRef, watchPostEffect } from 'vue';
import { actionsOf, connectionOf, messagesOf, stateOf, usersOf } from '../views.js';

/** @import { ComputedRef, InjectionKey, MaybeRefOrGetter } from 'vue' */
/** @import { Fanfare } from '../fanfare.js' */
/** @import { JoinOptions } from '../room.js' */
/** @import { RoomPayload } from '../rooms.js' */
/** @import { ConnectionView, Messages, MessagesOptions, Present } from '../views.js' */
/** @import { RoomActions, RoomListeners, View, ViewOptions } from '../views.js' */

/**
 * For `app.provide(fanfareKey, fanfare)`, or `provide` in a component.
 * @type {InjectionKey<Fanfare>}
 */
export const fanfareKey = Symbol('fanfare');

/** @returns {Fanfare} the client of the application @throws {Error} if none is provided */
export function useFanfare() {
  const fanfare = inject(fanfareKey, undefined);
  if (!fanfare) throw new Error('There is no client: app.provide(fanfareKey, fanfare)');
  return fanfare;
}

/**
 * @template Value
 * @param {(fanfare: Fanfare, name: any, options?: any) => View<Value>} viewOf
 * @param {MaybeRefOrGetter<string|null>} [name] @param {MaybeRefOrGetter<any>} [options]
 * @returns {ComputedRef<any>}
 */
function useView(viewOf, name, options) {
  const fanfare = useFanfare();
  const view = computed(() => viewOf(fanfare, toValue(name), toValue(options)));
  const changes = shallowRef(0);
  // After the page has changed: on a server it does not run.
  watchPostEffect((onCleanup) => {
    onCleanup(view.value.subscribe(() => triggerRef(changes)));
    triggerRef(changes);
  });
  return computed(() => {
    changes.value;
    return view.value.get();
  });
}

/**
 * Joins a room while the component is mounted. `null`: no room.
 * @template {string} Name @overload
 * @param {MaybeRefOrGetter<Name|null>} name
 * @param {MaybeRefOrGetter<JoinOptions & RoomListeners<RoomPayload<Name>>>} [options]
 * @returns {RoomActions<RoomPayload<Name>>}
 */
/**
 * @template Payload @overload
 * @param {MaybeRefOrGetter<string|null>} name
 * @param {MaybeRefOrGetter<JoinOptions & RoomListeners<NoInfer<Payload>>>} [options]
 * @returns {RoomActions<Payload>}
 */
/**
 * @param {MaybeRefOrGetter<string|null>} name
 * @param {MaybeRefOrGetter<JoinOptions & RoomListeners<any>>} [options] @returns {RoomActions}
 */
export function useRoom(name, options = {}) {
  const fanfare = useFanfare();
  const room = computed(() => actionsOf(fanfare, toValue(name)));
  watchPostEffect((onCleanup) => onCleanup(room.value.enter(() => toValue(options))));
  return {
    publish: (...args) => room.value.publish(...args),
    history: (...args) => room.value.history(...args),
  };
}

/**
 * The newest messages of a room. `null`: of no room.
 * @template {string} Name @overload
 * @param {MaybeRefOrGetter<Name|null>} name
 * @param {MaybeRefOrGetter<MessagesOptions<RoomPayload<Name>> & ViewOptions>} [options]
 * @returns {ComputedRef<Messages<RoomPayload<Name>>>}
 */
/**
 * @template Payload @overload
 * @param {MaybeRefOrGetter<string|null>} name
 * @param {MaybeRefOrGetter<MessagesOptions<NoInfer<Payload>> & ViewOptions>} [options]
 * @returns {ComputedRef<Messages<Payload>>}
 */
/**
 * @param {MaybeRefOrGetter<string|null>} name
 * @param {MaybeRefOrGetter<MessagesOptions<any> & ViewOptions>} [options]
 */
export function useMessages(name, options) {
  return useView(messagesOf, name, options);
}

/**
 * The values of a room with state; undefined until they are complete. `null`: of no room.
 * @template {string} Name @overload
 * @param {MaybeRefOrGetter<Name|null>} name @param {MaybeRefOrGetter<ViewOptions>} [options]
 * @returns {ComputedRef<ReadonlyMap<string, RoomPayload<Name>>|undefined>}
 */
/**
 * @template Payload @overload
 * @param {MaybeRefOrGetter<string|null>} name @param {MaybeRefOrGetter<ViewOptions>} [options]
 * @returns {ComputedRef<ReadonlyMap<string, Payload>|undefined>}
 */
/** @param {MaybeRefOrGetter<string|null>} name @param {MaybeRefOrGetter<ViewOptions>} [options] */
export function useRoomState(name, options) {
  return useView(stateOf, name, options);
}

/**
 * The users of a room with presence. `null`: of no room.
 * @param {MaybeRefOrGetter<string|null>} name @param {MaybeRefOrGetter<ViewOptions>} [options]
 * @returns {ComputedRef<Present>}
 */
export function usePresence(name, options) {
  return useView(usersOf, name, options);
}

/** The state of the connection. @returns {ComputedRef<ConnectionView>} */
export function useConnection() {
  return useView(connectionOf);
}
