// decided.js: hooks whose answers a test decides. It runs in the process of the worker.

/** What the hooks answer, and whom they were asked about. */
export const decided = {
  /** @type {(user: string|null, room: string) => any} */
  join: () => undefined,
  /** @type {(user: string|null, room: string, payload: any) => any} */
  publish: () => undefined,
};

export default /** @satisfies {import('../../../src/hooks/types.js').Hooks} */ ({
  onConnect({ user, headers }) {
    const name = headers['x-user'];
    return user === null && name !== undefined ? { user: String(name) } : undefined;
  },
  onJoin: ({ user }, room) => decided.join(user, room),
  onPublish: ({ user }, room, payload) => decided.publish(user, room, payload),
});
