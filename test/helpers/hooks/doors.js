// doors.js: hooks for tests of what all doors give to a connection that onJoin denies a room.

export default /** @satisfies {import('../../../src/hooks/types.js').Hooks} */ ({
  /** Names the clients that have no token. */
  onConnect({ user, headers }) {
    const name = headers['x-user'];
    return user === null && name !== undefined ? { user: String(name) } : undefined;
  },

  onJoin({ user }, room) {
    const isMember = user !== 'mallory';
    return !room.includes('team') || isMember ? undefined : { deny: 'not a member' };
  },
});
