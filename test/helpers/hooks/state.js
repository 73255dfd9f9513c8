// state.js: hooks for tests of rooms with state. Their answers follow from the room and the key.

export default /** @satisfies {import('../../../src/hooks/types.js').Hooks} */ ({
  onJoin(_connection, room, { key }) {
    if (key !== undefined) throw new Error('a join has no key');
    return room === 'price.staff' ? { deny: 'staff only' } : true;
  },

  async onPublish(_connection, room, payload, { key }) {
    if (key === undefined) return { payload: `${payload}, without a key` };
    if (key === 'fixed') return { deny: `nobody changes ${key} of ${room}` };
    if (key === 'kept' && payload === null) return { deny: 'nobody removes it' };
    if (key === 'twice') return { payload: payload * 2 };
    if (key === 'gone') return { payload: null };
  },
});
