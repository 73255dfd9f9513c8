// leaks.js: planted bugs that show a member a message for others, one or more for each path, and some
// that hide from a member what it may see.

const FLIGHT = 'src/hub/flight.js';
const CONNECTION = 'src/hub/connection.js';
const REPLAYS = 'src/recovery/replay-frames.js';
const STATE = 'src/recovery/state-members.js';
const STATE_SYNC = 'src/recovery/state-sync.js';
const area = /** @type {const} */ ('audiences');
const LEAK = 'a message for the staff reaches everybody';

/** @type {readonly import('./list.js').Mutant[]} */
export const LEAKS = Object.freeze(
  [
    {
      name: 'leak-in-a-flush',
      file: FLIGHT,
      find: 'if (this.restricted.length === 0) return own;',
      replace: 'if (this.restricted.length >= 0) return own;',
      simulation: { seconds: 4, found: 'I21' },
    },
    {
      name: 'leak-to-a-member-excluded-from-another',
      file: FLIGHT,
      find: 'return [...new Set([...own, ...hidden])].sort((a, b) => a - b);',
      replace: 'return own;',
      simulation: { seconds: 9, found: 'I29' },
    },
    {
      name: 'leak-between-sets-in-a-flush',
      file: FLIGHT,
      find: 'const known = this.hidden.get(audiences);',
      replace: 'const known = [...this.hidden.values()][0];',
      simulation: { seconds: 4, found: 'I21' },
    },
    {
      name: 'leak-between-groups-of-frames',
      file: FLIGHT,
      find: 'let rests = this.rests.get(omitted);',
      replace: 'let rests = [...this.rests.values()][0];',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-past-lagging-members',
      file: FLIGHT,
      find: '!isPositioned(one) && !own.includes(i)',
      replace: '!isPositioned(one)',
      simulation: { seconds: 21, found: 'I29' },
    },
    {
      name: 'leak-in-replays',
      file: 'src/recovery/room-joins.js',
      find: 'replayFor(replay, ids, connection.audiencesIn(this.roomName))',
      replace: 'replayFor(replay, ids, { maySee: () => true })',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-in-steps-of-lagging-members',
      file: 'src/recovery/lagging-members.js',
      find: 'const audiences = connection.audiencesIn(this.room);',
      replace: 'const audiences = { maySee: () => true };',
      simulation: { seconds: 9, found: 'I29' },
    },
    {
      name: 'leak-between-replays',
      file: REPLAYS,
      find: 'if (rest?.text !== text) {',
      replace: 'if (rest === undefined) {',
      simulation: { seconds: 5, found: 'I29' },
    },
    {
      name: 'leak-in-pages-of-a-history',
      file: 'src/recovery/history-reader.js',
      find: 'const rows = page.rows.filter(({ publication }) => audiences.maySee(publication));',
      replace: 'const { rows } = page;',
      simulation: { seconds: 16, found: 'I29' },
    },
    {
      name: 'leak-in-a-snapshot',
      file: STATE,
      find: '.filter((publication) => audiences.maySee(publication));',
      replace: ';',
      simulation: { seconds: 5, found: 'I21' },
    },
    {
      name: 'leak-between-steps-of-a-snapshot',
      file: STATE,
      find: ' && known.audiences === audiences',
      replace: '',
      simulation: { seconds: 5, found: 'I29' },
    },
    {
      name: 'leak-of-a-removed-key',
      file: 'src/protocol/compacted-log.js',
      find: 'isTombstone && former !== undefined',
      replace: 'isTombstone && former === null',
      simulation: { seconds: 5, found: 'I29' },
    },
    {
      name: 'leak-of-a-removed-key-in-redis',
      file: 'src/backend/redis/lua/publish-state.lua',
      find: 'if isRemoval and former > 0 then publication',
      replace: 'if isRemoval and former < 0 then publication',
      simulation: { seconds: 52, found: 'I29' },
    },
    {
      name: 'leak-of-what-a-key-was',
      file: STATE_SYNC,
      find: 'if (former !== undefined && audienceTextOf(kept) !== before)',
      replace: 'if (former === null)',
      whatAUserWouldSee: 'a key that is hidden now stays in the map of a member',
      simulation: { seconds: 4, found: 'I21' },
    },
    {
      name: 'leak-of-a-state-after-a-new-token',
      file: STATE_SYNC,
      find: 'if (this.log.restricted > 0) this.members.restartMember(connection);',
      replace: '',
      whatAUserWouldSee: 'a member keeps the keys that its former token allowed',
      simulation: { seconds: 8, found: 'I21' },
    },
    {
      name: 'leak-of-a-state-after-a-return',
      file: 'src/recovery/state-joins.js',
      find: '    if (room.log.restricted > 0) return null;\n',
      replace: '',
      whatAUserWouldSee: 'a client that comes back with less rights keeps its keys',
      simulation: { seconds: 4, found: 'I21' },
    },
    {
      name: 'leak-by-a-reference',
      file: 'src/operations/message.js',
      find: 'return withAudience(encodeClaim(now, sender, claim, except), audience);',
      replace: 'return encodeClaim(now, sender, claim, except);',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-by-a-hook',
      file: 'src/operations/publisher.js',
      find: "answer.audience === '' ? made : withAudience(made, answer.audience)",
      replace: 'made',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-to-older-servers',
      file: 'src/backend/batch.js',
      find: 'isRestricted(publication) ? buffer.writeUInt32BE(RESTRICTED_VERSION, at) : at',
      replace: 'isRestricted(publication) ? buffer.writeUInt32BE(VERSION + 0, at) : at',
      simulation: { seconds: 10, found: 'I30' },
    },
    {
      name: 'leak-after-the-end-of-a-session',
      file: CONNECTION,
      find: 'if (session.isAnonymous) return NO_AUDIENCES;',
      replace: 'if (session.isAnonymous) return given?.get(room) ?? NO_AUDIENCES;',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-after-leaving-a-room',
      file: 'src/hub/hub.js',
      find: '    connection.withdrawAudiences(room.name);\n',
      replace: '',
      simulation: { seconds: 18, found: 'I29' },
    },
    {
      name: 'leak-before-the-first-reply',
      file: 'src/operations/early-joins.js',
      find: 'return identity.audiences.in(name).with(owner.given?.get(room) ?? NO_AUDIENCES);',
      replace: 'return { maySee: () => true };',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-by-an-empty-list',
      file: 'src/protocol/audiences.js',
      find: 'if (!Array.isArray(list) || list.length === 0 || list.length > MAX_NAMED) return undefined;',
      replace: 'if (!Array.isArray(list) || list.length > MAX_NAMED) return undefined;',
      simulation: { seconds: 4, found: 'I29' },
    },
    {
      name: 'leak-by-a-repeated-key',
      file: 'src/protocol/fingerprint.js',
      find: "if (isRestricted(publication)) hash.update('\\0\\0').update(audienceTextOf(publication));",
      replace: '',
      whatAUserWouldSee: 'a message for others counts as a repeat of one for everybody',
      simulation: { seconds: 4, found: 'I30' },
    },
    {
      name: 'position-not-told',
      file: FLIGHT,
      find: 'if (!isBehind) return frames;',
      replace: 'return frames;',
      whatAUserWouldSee:
        'after a reconnect a client that missed nothing has to load its state again',
      simulation: { seconds: 4, found: 'I30' },
    },
  ].map((leak) => ({ whatAUserWouldSee: LEAK, area, ...leak })),
);
