// audiences.test.js: messages for some members of a room reach these, and not a byte of them reaches
// anybody else: in every format, live and replayed, from a history and a state, at random.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import {
  BatchReader,
  encodeReference,
  versionedBytes,
  writeVersioned,
} from '../../src/backend/batch.js';
import { registerFormats as registerCentrifugo } from '../../src/doors/centrifugo/codec/frames.js';
import { readStream } from '../../src/doors/centrifugo/stream.js';
import { PusherFrames } from '../../src/doors/pusher/codec/frames.js';
import { Connection } from '../../src/hub/connection.js';
import { encodeMessage, optionsOf } from '../../src/operations/message.js';
import {
  audiencesOf,
  EVERY_AUDIENCE,
  isHeldList,
  NO_AUDIENCES,
  readAudience,
} from '../../src/protocol/audiences.js';
import { asReference } from '../../src/protocol/claim.js';
import { CompactedLog } from '../../src/protocol/compacted-log.js';
import { FORMAT, registerFormat } from '../../src/protocol/format.js';
import { frameEnd } from '../../src/protocol/frame.js';
import {
  asClaim,
  audienceTextOf,
  exceptOf,
  isPublication,
  KIND,
  keyTextOf,
  kindOf,
  offsetOf,
  payloadText,
  senderOf,
  withAudience,
  withPosition,
} from '../../src/protocol/publication.js';
import { HistoryReader } from '../../src/recovery/history-reader.js';
import { marksIn, messageFor, sessionHolding } from '../helpers/audiences.js';
import { configOf } from '../helpers/config.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { buildHub, receive } from '../helpers/hub.js';
import { StateBroker } from '../helpers/state-broker.js';
import { StreamBroker } from '../helpers/stream-broker.js';

registerCentrifugo();
const pusherFrames = new PusherFrames(true);
registerFormat(FORMAT.PUSHER, {
  encode: pusherFrames.encode.bind(pusherFrames),
  endOf: frameEnd,
  encodeResync: () => Buffer.alloc(0),
});

const EPOCH = '00000000000000aa';
const TEN_SECONDS = 40;
const NAMES = ['a', 'b', 'c'];
const ANY = fc.subarray(NAMES);

async function settle(rounds = 3) {
  for (let i = 0; i < rounds; i++) await turn();
}

test('an audience is 1 to 4 different names, and a list of a user has up to 16 or a star', () => {
  assert.equal(readAudience(['staff', 'a.b:c@d_e-1']), 'a.b:c@d_e-1,staff');
  for (const bad of [undefined, null, 'staff', [], ['a', 'a'], ['*'], ['a,b'], [''], [1]])
    assert.equal(readAudience(bad), undefined, JSON.stringify(bad));
  assert.equal(readAudience(['a', 'b', 'c', 'd', 'e']), undefined);
  assert.equal(readAudience(['x'.repeat(65)]), undefined);
  assert.ok(isHeldList([]) && isHeldList(['*', 'staff']) && isHeldList(Array(16).fill('a')));
  for (const bad of [undefined, null, 'a', ['a b'], Array(17).fill('a'), [null]])
    assert.ok(!isHeldList(bad), JSON.stringify(bad));
});

test('equal sets of audiences are one object, also as unions', () => {
  assert.equal(audiencesOf(['b', 'a', 'b']), audiencesOf(['a', 'b']));
  assert.equal(audiencesOf([]), NO_AUDIENCES);
  assert.equal(audiencesOf(['a', '*']), EVERY_AUDIENCE);
  assert.equal(audiencesOf(['a']).with(audiencesOf(['b'])), audiencesOf(['a', 'b']));
  assert.equal(NO_AUDIENCES.with(audiencesOf(['b'])), audiencesOf(['b']));
  assert.equal(audiencesOf(['a']).with(EVERY_AUDIENCE), EVERY_AUDIENCE);
});

test('a publication keeps everything else when it gets an audience, or another', () => {
  fc.assert(
    fc.property(ANY, ANY, fc.boolean(), fc.boolean(), (names, others, hasKey, isPositioned) => {
      const [audience, other] = [names.join(), others.join()];
      const parts = hasKey ? { key: 'k"ö' } : { except: 'c1' };
      const plain = messageFor(7, '', parts);
      const made = withAudience(messageFor(7, other, parts), audience);
      const one = isPositioned ? withPosition(made, 3, EPOCH) : made;
      assert.ok(isPublication(made));
      assert.equal(audienceTextOf(one), audience);
      assert.equal(kindOf(one), isPositioned ? KIND.POSITIONED : KIND.MESSAGE);
      assert.deepEqual([payloadText(one), senderOf(one)], [payloadText(plain), 'me']);
      if (hasKey) assert.equal(keyTextOf(one), keyTextOf(plain));
      else assert.equal(exceptOf(one), 'c1');
      if (isPositioned) assert.equal(offsetOf(one), 3);
      if (audience === '') assert.deepEqual(made, plain);
      assert.deepEqual(withAudience(one, '').length, one.length - audience.length);
    }),
  );
});

test('a restricted publication has a kind that older versions do not know', () => {
  for (const parts of [{}, { key: 'k' }, { except: 'c' }]) {
    const bytes = messageFor(1, 'a', parts);
    // FLAGS of the version before: EXCEPT, CLAIM, TRANSIENT and KEY.
    assert.equal(bytes[0] & ~0xb8, 7);
    assert.equal(withPosition(bytes, 1, EPOCH)[0] & ~0xb8, 0x47);
  }
  assert.equal(asClaim(messageFor(1, 'a'))[0] & ~0xb8, 7);
});

test('a malformed audience makes a publication invalid', () => {
  const good = messageFor(1, 'staff');
  assert.ok(isPublication(good));
  for (const text of [',staff', 'sta ff', 'a,b,c,d,e', 'x'.repeat(65)])
    assert.ok(!isPublication(withAudience(good, text)), text);
  const empty = Buffer.from(messageFor(1, ''));
  empty[0] |= 7;
  assert.ok(!isPublication(empty), 'a restricted kind without an audience');
  const long = Buffer.from(good);
  long.writeUInt16BE(60_000, 7);
  assert.ok(!isPublication(long));
});

test('messages of clients and references keep their audience, which repeats compare', () => {
  const source = Buffer.from('"x"');
  const parts = { source, start: 0, end: 3, sender: 'me', except: '', key: undefined, app: null };
  const message = { ...parts, idempotencyKey: 'k', owner: '' };
  const claim = { key: 'k', bytes: 9, sha256: 'f'.repeat(64), contentType: 'text/plain' };
  for (const audience of ['', 'a,b']) {
    const [plain, keyed, claimed] = [{}, { key: 'k' }, { claim }].map((more) =>
      encodeMessage({ ...message, ...more, audience }),
    );
    for (const one of [plain, keyed, claimed]) assert.equal(audienceTextOf(one), audience);
    const reference = asReference(claimed, 'https://bucket.test/k', 1);
    assert.equal(audienceTextOf(reference), audience);
    assert.ok(isPublication(reference) && payloadText(reference).includes('bucket.test'));
  }
  const prints = ['', 'a', 'b'].map((audience) => {
    const one = encodeMessage({ ...message, audience });
    return optionsOf(message, one)?.fingerprint;
  });
  assert.equal(new Set(prints).size, 3);
});

test('a reader of the former version stops before a publication with an audience', () => {
  const sent = [messageFor(1, ''), messageFor(2, 'a'), messageFor(3, '')];
  const bytes = sent.reduce((sum, one) => sum + versionedBytes(one), 0);
  const body = Buffer.alloc(bytes);
  const end = sent.reduce((at, one) => writeVersioned(body, at, one), 0);
  assert.equal(end, bytes);
  const batch = new BatchReader(body);
  for (const one of sent) {
    assert.ok(batch.next());
    assert.deepEqual(batch.publication, one);
  }
  assert.ok(!batch.next() && !batch.isMalformed && batch.unknownVersion === 0);
  // Version 1 has no version item that it knows.
  const at = 4 + sent[0].length;
  assert.equal(body.readUInt32BE(at), 0xc0000002);
  assert.equal(encodeReference('id', sent[1]).readUInt32BE(0), 0xc0000002);
  assert.ok(new BatchReader(encodeReference('id', sent[1])).next());
});

test('a tombstone has the audience of what it removes, whatever its publish named', () => {
  for (const [was, named] of [
    ['a', ''],
    ['', 'a'],
    ['a', 'b'],
  ]) {
    const log = new CompactedLog({ maxKeys: 9, maxBytes: 1e6 });
    log.put(1, messageFor(1, was, { key: 'k' }));
    const kept = log.put(2, messageFor(2, named, { key: 'k', isRemoval: true }));
    assert.equal(audienceTextOf(kept), was);
    assert.equal(log.restricted, was === '' ? 0 : 1);
  }
});

/** A hub with rooms: h… has history, s… state, others neither. */
function build({ size = 12, isState = false } = {}) {
  const broker = isState ? new StateBroker({ size }) : new StreamBroker({ size });
  const clock = { now: 1000 };
  const rule = { size, ttlMs: 60_000, ...(isState && { state: { everyMs: 0, maxBytes: 1e6 } }) };
  const parts = buildHub({
    ...{ config: configOf({}), broker, clock: () => clock.now },
    historyOf: (room) => (/^[hs]/.test(room) ? rule : null),
  });
  parts.turn.clock = () => clock.now;
  broker.onPublication = (...args) => parts.hub.broadcast(...args);
  const tick = async (/** @type {number} */ count) => {
    for (let i = 0; i < count; i++) {
      clock.now += 250;
      parts.scheduler.wheel.tick();
      await settle(1);
    }
  };
  /** @type {Map<number, string>} */
  const audiences = new Map();
  /** For whom each message is. @param {number} id @param {string} audience */
  const record = (id, audience) => void audiences.set(id, audience);
  /** @param {readonly string[]} held @param {number} [format] */
  const connect = (held, format = FORMAT.FRAMES) => new Member(parts, audiences, held, format);
  return { ...parts, broker, tick, record, connect };
}

/** A client that checks each byte when it is written. */
class Member {
  /**
   * @param {ReturnType<typeof buildHub>} worker @param {ReadonlyMap<number, string>} audiences
   * @param {readonly string[]} held @param {number} format
   */
  constructor({ hub, commands }, audiences, held, format) {
    this.commands = commands;
    this.hub = hub;
    this.transport = new FakeTransport();
    this.transport.format = format;
    this.connection = new Connection(this.transport, '127.0.0.1');
    hub.addConnection(this.connection);
    this.connection.beginSession(sessionHolding(held));
    /** @type {number[]} */
    this.seen = [];
    const write = this.transport.write.bind(this.transport);
    this.transport.write = (frames) => {
      for (const id of marksIn(frames)) {
        const audience = /** @type {string} */ (audiences.get(id));
        const now = this.connection.audiencesIn('h');
        assert.ok(now.holdsOneOf(audience), `m${id} for ${audience} leaked in format ${format}`);
        this.seen.push(id);
      }
      for (const [, name] of frames.toString('latin1').matchAll(/secret-(\w)/g))
        assert.ok(
          this.connection.audiencesIn('h').holdsOneOf(name),
          `the key secret-${name} leaked`,
        );
      write(frames);
    };
  }

  /** @param {object} message */
  say(message) {
    receive(this.commands, this.connection, message);
  }

  /** @param {readonly string[]} held */
  renew(held) {
    this.connection.beginSession(sessionHolding(held));
  }

  /** @param {string} [type] */
  messages(type) {
    return this.transport.messages().filter((one) => type === undefined || one.type === type);
  }
}

const FORMATS = [
  FORMAT.FRAMES,
  FORMAT.EVENTS,
  FORMAT.PUSHER,
  FORMAT.CENTRIFUGO_JSON,
  FORMAT.CENTRIFUGO_PROTOBUF,
  FORMAT.CENTRIFUGO_LINES,
];

for (const room of ['plain', 'h'])
  test(`a flush in ${room} reaches whom it is for, in every format, and the rest in order`, async () => {
    const { broker, hub, record, connect } = build();
    const members = FORMATS.flatMap((format) => [
      connect([], format),
      connect(['a'], format),
      connect(['a', 'b'], format),
      connect(['*'], format),
    ]);
    for (const member of members)
      hub.join(member.connection, room, { since: null, onJoined() {}, onRefused: assert.fail });
    await settle();
    const sent = ['', 'a', 'b', 'a,b', '', 'c', 'b'];
    for (const [id, audience] of sent.entries()) {
      record(id, audience);
      if (room === 'h') broker.accept(room, messageFor(id, audience));
      else hub.broadcast(room, messageFor(id, audience));
    }
    broker.deliver();
    await settle();
    for (const [index, { seen }] of members.entries())
      assert.deepEqual(
        seen,
        [
          [0, 4],
          [0, 1, 3, 4],
          [0, 1, 2, 3, 4, 6],
          [0, 1, 2, 3, 4, 5, 6],
        ][index % 4],
        `format ${FORMATS[Math.floor(index / 4)]}`,
      );
  });

test('a member comes to the position of messages that it may not see, and no other byte tells', async () => {
  const { broker, record, connect } = build();
  const [none, a] = [connect([]), connect(['a'])];
  for (const one of [none, a]) one.say({ type: 'join', room: 'h' });
  await settle();
  for (const id of [1, 2]) {
    record(id, 'a');
    broker.accept('h', messageFor(id, 'a'));
  }
  broker.deliver();
  await settle();
  const { epoch } = broker.stream('h');
  assert.deepEqual(none.messages().slice(1), [{ type: 'position', room: 'h', epoch, offset: 2 }]);
  assert.deepEqual(
    a.messages('message').map(({ offset }) => offset),
    [1, 2],
  );
  assert.deepEqual(a.messages('position'), []);
});

test('a lagging member gets no message without a position that is for others', async () => {
  const { broker, hub, record, connect } = build();
  const member = connect([]);
  member.say({ type: 'join', room: 'h' });
  await settle();
  member.transport.isStuck = true;
  for (let id = 1; id <= 4; id++) {
    record(id, '');
    broker.accept('h', messageFor(id, '', { size: 40_000 }));
    broker.deliver();
    await settle();
  }
  assert.equal(member.connection.lags, 1);
  for (const [id, audience] of [
    [10, 'a'],
    [11, ''],
  ]) {
    record(Number(id), String(audience));
    hub.broadcast('h', messageFor(Number(id), String(audience)));
  }
  await settle();
  assert.ok(member.seen.includes(11));
});

test('what waits for a connection before its first reply follows its coming audiences', async () => {
  const { broker, hub, operations, connect } = build();
  const { connection } = connect([]);
  const { identity } = sessionHolding(['a']);
  connection.endSession();
  /** @type {number[]} */
  const seen = [];
  connection.transport.write = (frames) => void seen.push(...marksIn(frames));
  const credentials = { identity, lease: null, refusal: null };
  /** @type {() => void} */
  let answer = () => {};
  const { history } = broker;
  broker.history = async (...args) => {
    await new Promise((resolve) => {
      answer = () => resolve(undefined);
    });
    return history.apply(broker, args);
  };
  const rooms = ['plain', 'h'].map((name) => ({ name, since: null }));
  operations.earlyJoins.joinBeforeReply(connection, credentials, rooms, {
    onJoined: () => connection.beginSession(sessionHolding(['a'])),
    onFailed: () => assert.fail(),
    whoOf: () => ({ info: null }),
    onEntered() {},
    onLost: () => assert.fail(),
  });
  await settle();
  for (const [id, audience] of ['a', 'b', ''].entries())
    hub.broadcast('plain', messageFor(id, audience));
  await settle();
  assert.deepEqual(seen, [], 'the first reply comes first');
  answer();
  await settle(6);
  assert.deepEqual(seen, [0, 2]);
});

test('a member that lags gets its steps without what is for others', async () => {
  const { broker, record, connect } = build({ size: 100 });
  const member = connect(['b']);
  member.say({ type: 'join', room: 'h' });
  await settle();
  member.transport.isStuck = true;
  for (let id = 1; id <= 9; id++) {
    const audience = id === 6 || id === 9 ? 'a' : id === 7 ? 'b' : '';
    record(id, audience);
    broker.accept('h', messageFor(id, audience, { size: id < 5 ? 40_000 : 0 }));
    broker.deliver();
    await settle();
  }
  assert.equal(member.connection.lags, 1);
  member.transport.drain();
  await settle(12);
  assert.deepEqual(member.transport.failures, []);
  assert.deepEqual(member.seen, [1, 2, 3, 4, 5, 7, 8]);
  assert.equal(member.messages('position').at(-1).offset, 9);
});

test('replays of one range differ by what their readers may see', async () => {
  const { broker, record, connect } = build();
  connect([]).say({ type: 'join', room: 'h' });
  await settle();
  for (const [id, audience] of ['', 'a', 'b', 'a,b'].entries()) {
    record(id, audience);
    broker.accept('h', messageFor(id, audience));
  }
  broker.deliver();
  await settle();
  for (const [held, expected] of /** @type {[string[], number[]][]} */ ([
    [['a'], [0, 1, 3]],
    [['b'], [0, 2, 3]],
    [[], [0]],
    [
      ['a', 'b'],
      [0, 1, 2, 3],
    ],
  ])) {
    const member = connect(held);
    member.say({ type: 'join', room: 'h', last: 10 });
    await settle();
    assert.deepEqual(member.transport.failures, []);
    assert.deepEqual(member.seen, expected);
  }
});

test('the latest messages are those that a member may see, with older ones read if needed', async () => {
  const { broker, record, connect } = build({ size: 100 });
  const accept = (/** @type {number} */ id, audience = id % 5 === 0 ? '' : 'a') => {
    record(id, audience);
    broker.accept('h', messageFor(id, audience));
  };
  for (let id = 1; id <= 40; id++) accept(id);
  broker.announcements = [];
  const reader = connect([]);
  reader.say({ type: 'join', room: 'h' });
  await settle();
  accept(41, '');
  broker.deliver();
  await settle();
  for (const [last, expected] of /** @type {[number, number[]][]} */ ([
    [3, [35, 40, 41]],
    [1, [41]],
    [50, [5, 10, 15, 20, 25, 30, 35, 40, 41]],
  ])) {
    const member = connect([]);
    member.say({ type: 'join', room: 'h', last });
    await settle();
    assert.deepEqual(member.transport.failures, []);
    assert.deepEqual(member.seen, expected);
    const [{ replayed }] = member.messages('joined');
    assert.equal(replayed, expected.length);
  }
  const all = connect(['a']);
  all.say({ type: 'join', room: 'h', last: 3 });
  await settle();
  assert.deepEqual(all.seen, [39, 40, 41]);
});

test('a client that returns to a state with less rights begins with an empty map', async () => {
  const model = new Model(true);
  const { built, room } = model;
  const [member] = model.members;
  member.renew(['a']);
  model.join(member);
  await settle();
  model.publish('a', { key: 'secret-a' });
  model.publish('', { key: 'k1' });
  built.broker.deliver();
  await settle();
  const { epoch, offset, map } = placeOf(member.transport, true);
  assert.deepEqual([...map.keys()], ['secret-a', 'k1']);
  built.hub.leave(member.connection, /** @type {any} */ (built.hub.rooms.get(room)));
  // Another member keeps the room open.
  model.join(model.members[2]);
  member.renew([]);
  model.join(member, { since: { epoch, offset, connectionId: '' } });
  await settle();
  assert.deepEqual([...placeOf(member.transport, true).map.keys()], ['k1']);
});

test('a client that hides keys pays for the state that members get again, in whatever tick', async () => {
  const { broker, publisher, connect } = build({ isState: true });
  const [sender, member] = [connect(['a', 'b']), connect(['b'])];
  for (const one of [sender, member]) {
    one.transport.write = FakeTransport.prototype.write; // one id for all
    one.say({ type: 'join', room: 's' });
  }
  const large = messageFor(0, '', { key: 'large', size: 20_000 });
  const { offset } = broker.accept('s', large);
  /** @type {StateBroker} */ (broker).log('s').put(offset, large);
  broker.deliver();
  await settle();
  /** @type {number[]} */
  const charged = [];
  publisher.limitBy({
    charge: (_connection, bytes) => void charged.push(bytes),
    chargeMembers: (_connection, members) => assert.equal(members, 2),
  });
  /** What messages of one tick cost, by key and audience. @param {[string, string[]|null, null?][]} sent */
  const costOf = async (...sent) => {
    const resets = member.messages('reset').length;
    for (const [key, audience, payload = 1] of sent)
      sender.say({ type: 'message', room: 's', key, payload, ...(audience && { audience }) });
    await settle();
    broker.deliver();
    await settle(12);
    // The next one with an audience pays, if the answer came before the message did.
    sender.say({ type: 'message', room: 's', key: 'next', payload: 1, audience: ['b'] });
    await settle();
    broker.deliver();
    await settle(12);
    const times = charged.splice(0).map((bytes) => bytes / 20_000);
    for (const one of times) assert.ok(one > 1 && one < 1.3, `${one}`);
    assert.equal(member.messages('reset').length - resets, times.length, JSON.stringify(sent));
    return times.length;
  };
  assert.equal(await costOf(['open', null], ['open', null, null]), 0, 'nothing is hidden');
  assert.equal(await costOf(['own', ['a', 'b']], ['own', ['a', 'b', 'c']]), 0, 'more may see it');
  assert.equal(await costOf(['own', ['a'], null]), 0, 'a removal hides nothing');
  assert.equal(await costOf(['other', ['a']]), 0, 'nobody knew the key');
  assert.equal(await costOf(['open', null]), 0);
  assert.equal(await costOf(['open', ['a']]), 1);
  assert.equal(await costOf(['new', null], ['new', ['a']]), 1, 'the log had no such key');
  assert.equal(await costOf(['new', null], ['new', ['a']]), 1, 'it had the key for the same');
  await costOf(['k1', null], ['k2', null]);
  assert.equal(await costOf(['k1', ['a']], ['k2', ['a']]), 1, 'one reset for both keys');
});

test('a sender on another worker does not pay for old resets when it comes to this one', async () => {
  const { broker, hub, tick, connect } = build({ isState: true });
  const member = connect(['b']);
  member.transport.write = FakeTransport.prototype.write; // one id for all
  member.say({ type: 'join', room: 's' });
  const publish = async (/** @type {string} */ key, audience = '', size = 0) => {
    const publication = messageFor(0, audience, { key, size });
    const { offset } = broker.accept('s', publication);
    /** @type {StateBroker} */ (broker).log('s').put(offset, publication);
    broker.deliver();
    await settle();
  };
  const hide = async () => {
    await publish('k');
    await publish('k', 'a');
    await tick(1);
  };
  const statesOwed = () => {
    const bytes = hub.rooms.get('s')?.sync?.takeDebt('me') ?? Number.NaN;
    return Math.floor(bytes / 20_000);
  };
  await settle();
  await publish('large', '', 20_000);
  await hide();
  await hide();
  assert.equal(statesOwed(), 2);
  assert.equal(statesOwed(), 0, 'it is paid');
  for (let i = 0; i < 8; i++) {
    await hide();
    await tick(TEN_SECONDS);
  }
  assert.equal(member.messages('reset').length, 10);
  assert.equal(statesOwed(), 2, 'the last two');
  await hide();
  await tick(3 * TEN_SECONDS);
  assert.equal(statesOwed(), 0);
});

test('members from whom the same messages are hidden share the bytes of a flush', async () => {
  const { broker, hub, connect } = build();
  const members = Array.from({ length: 40 }, (_, i) => connect([`own${i}`]));
  members.push(connect(['a']));
  for (const { connection } of members)
    hub.join(connection, 'h', { since: null, onJoined() {}, onRefused: assert.fail });
  await settle();
  for (const audience of ['', 'x', '']) broker.accept('h', messageFor(0, audience));
  const [{ connection }] = members;
  const before = members.map(({ transport }) => transport.writes.length);
  // The oracle of `connect` knows one audience for an id; here all three are 0.
  for (const { transport } of members) transport.write = FakeTransport.prototype.write;
  broker.deliver();
  await settle();
  assert.ok(connection.isOpen);
  const written = members.map(({ transport }, i) => transport.writes.slice(before[i]));
  for (const [frames] of written) assert.equal(frames, written[0][0]);
});

test('without a user, or after its end, a connection holds nothing; the star holds all', () => {
  const connection = new Connection(new FakeTransport(), '127.0.0.1');
  connection.giveAudiences('h', ['a']);
  assert.equal(connection.audiencesIn('h'), NO_AUDIENCES);
  connection.beginSession(sessionHolding(['b'], { 'doc.*': { audiences: ['c'] } }));
  assert.equal(connection.audiencesIn('h'), audiencesOf(['a', 'b']));
  assert.equal(connection.audiencesIn('doc.1'), audiencesOf(['b', 'c']));
  connection.giveAudiences('h', []);
  assert.equal(connection.audiencesIn('h'), audiencesOf(['b']));
  connection.endSession();
  assert.equal(connection.audiencesIn('doc.1'), NO_AUDIENCES);
  connection.beginSession(sessionHolding(['*']));
  assert.equal(connection.audiencesIn('h'), EVERY_AUDIENCE);
});

test('what rooms gave is forgotten when the connection leaves, and bounded for rooms that it only read', async () => {
  const { hub, connect } = build();
  const { connection } = connect([]);
  hub.join(connection, 'h', { since: null, onJoined() {}, onRefused: assert.fail });
  await settle();
  connection.giveAudiences('h', ['a']);
  for (let i = 0; i < 1000; i++) connection.giveAudiences(`read.${i}`, ['a']);
  assert.ok(Number(connection.given?.size) < 100);
  assert.equal(connection.audiencesIn('h'), audiencesOf(['a']));
  hub.leave(connection, /** @type {any} */ (hub.rooms.get('h')));
  assert.equal(connection.audiencesIn('h'), NO_AUDIENCES);
});

test('a join to a state is charged for what its client may see', () => {
  const log = new CompactedLog({ maxKeys: 9, maxBytes: 1e6 });
  log.put(1, messageFor(1, '', { key: 'k' }));
  const { bytes } = log.after(0, NO_AUDIENCES);
  log.put(2, messageFor(2, 'a', { key: 'hidden', size: 50_000 }));
  assert.equal(log.after(0, NO_AUDIENCES).bytes, bytes);
  assert.equal(log.after(0, audiencesOf(['a'])).bytes, log.bytes);
  assert.equal(log.after(1, NO_AUDIENCES).bytes, 0);
});

test('a new token with the same audiences changes nothing, however many others there are', () => {
  const connection = new Connection(new FakeTransport(), '127.0.0.1');
  connection.beginSession(sessionHolding(['own'], { 's.*': { audiences: ['more'] } }));
  let reviews = 0;
  connection.setPosition({ name: 's.1', sync: null, users: null, review: () => reviews++ }, 0);
  const renew = (/** @type {string} */ name) =>
    connection.beginSession(sessionHolding([name], { 's.*': { audiences: ['more'] } }));
  assert.equal(connection.audiencesIn('s.1'), audiencesOf(['more', 'own']));
  for (let i = 0; i < 20_000; i++) audiencesOf([`bidder.${i}`]);
  // As many claims, by which the sets of tokens are remembered.
  for (let i = 0; i < 1001; i++) sessionHolding([`bidder.${i}`]);
  renew('own');
  assert.equal(reviews, 0);
  renew('other');
  assert.equal(reviews, 1);
});

test('what onJoin gives in the rooms of a first command is kept for each of them', () => {
  const early = new Connection(new FakeTransport(), '127.0.0.1');
  for (let i = 0; i < 100; i++) early.giveAudiences(`early.${i}`, ['a']);
  early.beginSession(sessionHolding(['own']));
  for (let i = 0; i < 100; i++)
    assert.equal(early.audiencesIn(`early.${i}`), audiencesOf(['a', 'own']), `room ${i}`);
});

test('what onJoin gives is withdrawn from rooms that a first command did not enter', async () => {
  const { operations, connect } = build();
  const { connection } = connect([]);
  const rooms = ['plain', 'h'].map((name) => ({ name, since: null }));
  for (const { name } of rooms) connection.giveAudiences(name, ['a']);
  operations.earlyJoins.joinBeforeReply(connection, null, rooms, {
    onJoined: () => connection.markClosed(),
    onFailed: () => assert.fail(),
    whoOf: () => ({ info: null }),
    onEntered: () => assert.fail(),
    onLost: () => assert.fail(),
  });
  await settle(6);
  assert.equal(connection.given?.size, 0);
});

for (const room of ['plain', 'h'])
  test(`a join of ${room} by the backend that fails leaves neither audiences nor the right to join`, async () => {
    const { broker, operations, connect } = build();
    const subscribe = broker.subscribe.bind(broker);
    broker.subscribe = async () => {
      throw Object.assign(new Error('away'), { code: 'UNAVAILABLE', name: 'BrokerError' });
    };
    const { connection } = connect([]);
    const { session } = connection;
    assert.ok(operations.joins.joinAs(connection, room, 'ann', ['a']));
    await settle();
    assert.ok(!operations.joins.isIn(connection, room));
    assert.deepEqual([session.granted?.has(room), connection.given?.has(room)], [false, false]);
    broker.subscribe = subscribe;
    assert.ok(operations.joins.joinAs(connection, room, 'ann', ['a']));
    await settle();
    assert.deepEqual([session.granted?.has(room), connection.given?.has(room)], [true, true]);
  });

test("Centrifugo's history reads on where all is for others, and never ends too early", async () => {
  const { broker, scheduler, counters } = build({ size: 1000 });
  for (let id = 1; id <= 903; id++)
    broker.accept('h', messageFor(id, id < 3 || id === 903 ? '' : 'a'));
  const { epoch } = broker.stream('h');
  const look = async (/** @type {object} */ query, /** @type {any} */ reader) => {
    const all = { limit: 2, since: null, isReverse: false, ...query };
    const { publications } = await readStream(reader, 'h', all, () => NO_AUDIENCES);
    return publications.map(({ offset }) => offset);
  };
  const reader = new HistoryReader({ scheduler, counters });
  assert.deepEqual(await look({ since: { epoch, offset: 0 } }, reader), [1, 2]);
  assert.deepEqual(await look({ since: { epoch, offset: 1 }, limit: 3 }, reader), [2, 903]);
  assert.deepEqual(await look({ isReverse: true }, reader), [903, 2]);
  // Messages so large that each page has one.
  let offset = 0;
  const page = async () => {
    offset++;
    const part = { rows: [], first: offset, last: offset, hasMore: true, searchedBytes: 16_384 };
    return { ...part, epoch, offset: 1e4 };
  };
  const all = { limit: 2, since: null, isReverse: false };
  const endless = await readStream(/** @type {any} */ ({ page }), 'h', all, () => NO_AUDIENCES);
  assert.equal(endless.isUnfinished, true);
  assert.ok(offset < 20, 'it is bounded');
  assert.equal(endless.searchedBytes, (offset - 1) * 16_384, 'without the look for the position');
});

test('a reader is charged for messages for others, in steps that hide their sizes', async () => {
  const { broker, scheduler, counters } = build({ size: 1000 });
  for (let id = 1; id <= 40; id++) broker.accept('h', messageFor(id, id % 4 === 0 ? '' : 'a'));
  const reader = new HistoryReader({ scheduler, counters });
  const read = (/** @type {string[]} */ names) =>
    reader.read('h', { limit: 20 }, () => audiencesOf(names));
  assert.equal((await read([])).searchedBytes, 16 * 1024);
  assert.equal((await read(['a'])).searchedBytes, 0);
});

test('pages of a history have what their reader may see, and go on or say where to', async () => {
  const { broker, record, connect } = build({ size: 1000 });
  for (let id = 1; id <= 600; id++) {
    const audience = id === 1 || id > 590 ? '' : 'a';
    record(id, audience);
    broker.accept('h', messageFor(id, audience));
  }
  const { epoch } = broker.stream('h');
  const reader = connect([]);
  const ask = async (/** @type {object} */ place) => {
    reader.say({ type: 'history', room: 'h', limit: 20, ...place });
    await settle(20);
    const { messages, more, next } = reader.messages('history').at(-1);
    return { offsets: messages.map((/** @type {any} */ one) => one.offset), more, next };
  };
  const top = Array.from({ length: 10 }, (_, i) => 591 + i);
  assert.deepEqual(await ask({}), { offsets: top, more: true, next: undefined });
  const below = await ask({ before: { epoch, offset: 591 } });
  assert.deepEqual(below, { offsets: [], more: true, next: { epoch, offset: 511 } });
  const above = await ask({ since: { epoch, offset: 1 } });
  assert.deepEqual(above, { offsets: [], more: true, next: { epoch, offset: 81 } });
  let last = below;
  for (let i = 0; i < 20 && last.next; i++) last = await ask({ before: last.next });
  assert.deepEqual(last, { offsets: [1], more: false, next: undefined });
});

test('a change of rights while a page is read holds for its answer', async () => {
  for (let turns = 0; turns < 12; turns++) {
    const { broker, record, connect } = build({ size: 100 });
    for (const [id, audience] of ['', 'a', ''].entries()) {
      record(id, audience);
      broker.accept('h', messageFor(id, audience));
    }
    const member = connect(['a']);
    member.say({ type: 'history', room: 'h' });
    for (let i = 0; i < turns; i++) await null;
    member.renew([]);
    await settle();
    assert.deepEqual(member.transport.failures, [], `after ${turns} turns`);
    if (!member.seen.includes(1)) assert.deepEqual(member.seen, [0, 2]);
  }
});

const STEP = fc.record({
  kind: fc.constantFrom(
    ...['publish', 'publish', 'publish', 'publish', 'deliver', 'deliver', 'deliver'],
    ...['lose', 'epoch', 'join', 'join', 'rejoin', 'rejoin', 'leave', 'renew', 'give', 'stick'],
    ...['drain', 'drain', 'turn', 'tick', 'evict', 'history', 'last', 'remove', 'full', 'except'],
  ),
  who: fc.nat(5),
  names: ANY,
  n: fc.nat(20),
});

/** One room under random steps. */
class Model {
  /** @param {boolean} isState */
  constructor(isState) {
    this.isState = isState;
    this.room = isState ? 's' : 'h';
    this.built = build({ isState });
    this.id = 0;
    this.members = FORMATS.slice(0, isState ? 2 : 6).map((format) =>
      this.built.connect([], format),
    );
    if (isState) this.members.push(this.built.connect([]), this.built.connect([]));
    /** Audience and key by offset, in this epoch. @type {Map<string, {id: number, audience: string}>} */
    this.truth = new Map();
  }

  /** @param {Member} member @param {object} [more] */
  join(member, more = {}) {
    if (this.built.hub.rooms.get(this.room)?.has(member.connection)) return;
    this.built.operations.joins.subscribe(member.connection, this.room, {
      ...{ since: null, who: null, mayReadAll: true, onRefused() {}, ...more },
      onJoined: (joined) => {
        if (member.transport.format !== FORMAT.FRAMES) return;
        const { epoch, offset, recovered } = /** @type {any} */ (joined);
        member.connection.send(JSON.stringify({ type: 'joined', epoch, offset, recovered }));
      },
    });
  }

  /** @param {string} audience @param {{except?: string, isRemoval?: boolean, size?: number, key?: string|undefined}} [parts] */
  publish(audience, parts = {}) {
    const { broker, record } = this.built;
    const id = ++this.id;
    record(id, audience);
    const key = this.isState ? (parts.key ?? `k${id % 4}`) : null;
    const publication = messageFor(id, audience, { ...parts, key });
    const position = broker.accept(this.room, publication);
    if (broker instanceof StateBroker) broker.log(this.room).put(position.offset, publication);
  }

  /** @param {string} key */
  hasKey(key) {
    const { broker } = this.built;
    return broker instanceof StateBroker && broker.log(this.room).get(key) !== undefined;
  }

  /** @param {{kind: string, who: number, names: string[], n: number}} step */
  async run({ kind, who, names, n }) {
    const { broker, hub, scheduler, tick } = this.built;
    const member = this.members[who % this.members.length];
    const { connection, transport } = member;
    const { epoch, offset } = broker.stream(this.room);
    switch (kind) {
      case 'publish': {
        // Keys whose audience never changes: their names must not leak, either.
        const [own = 'a'] = names;
        if (n % 3 === 1) return this.publish(own, { key: `secret-${own}` });
        return this.publish(names.join(), { size: n === 0 ? 30_000 : 0 });
      }
      case 'except':
        return this.publish(names.join(), this.isState ? {} : { except: connection.id });
      case 'remove': {
        const key = n % 2 === 0 ? `secret-${names[0] ?? 'b'}` : undefined;
        if (key !== undefined && this.isState && !this.hasKey(key)) return;
        return this.publish(n % 3 === 0 ? names.join() : '', { isRemoval: this.isState, key });
      }
      case 'deliver':
        return broker.deliver(1 + (n % 4));
      case 'lose':
        return void broker.announcements.splice(0, 1 + (n % 3));
      case 'epoch':
        if (n < 5) broker.forget(this.room);
        return;
      case 'join':
        return this.join(member);
      case 'rejoin':
      case 'last': {
        const back = { epoch, offset: Math.max(0, offset - n) };
        // A state continues from what its client has.
        const own = this.isState && transport.format === FORMAT.FRAMES;
        const place = own
          ? placeOf(transport, true)
          : { ...back, epoch: this.isState ? '' : epoch };
        const since = { epoch: place.epoch, offset: place.offset, connectionId: '' };
        return this.join(member, kind === 'last' && !this.isState ? { last: n + 1 } : { since });
      }
      case 'leave': {
        const room = hub.rooms.get(this.room);
        if (room?.has(connection)) hub.leave(connection, room);
        return;
      }
      case 'renew':
        return member.renew(names);
      case 'give':
        return connection.giveAudiences(this.room, names);
      case 'stick':
        transport.isStuck = true;
        return;
      case 'drain':
        return transport.drain(n > 15);
      case 'evict':
        return scheduler.syncs.get(this.room)?.replayBuffer.evict();
      case 'history':
        if (!this.isState) member.say({ type: 'history', room: this.room, limit: 1 + n });
        return;
      case 'tick':
        return tick(1);
      default:
        return settle(1);
    }
  }

  async end() {
    const { broker, tick } = this.built;
    for (const { transport } of this.members) transport.drain();
    // The last message excludes nobody by its connection, which nothing would tell.
    this.publish('c');
    broker.deliver();
    await settle();
    for (let i = 0; i < 3; i++) {
      await tick(TEN_SECONDS);
      for (const { transport } of this.members) transport.drain();
      await settle();
    }
  }
}

/** The oracle of Member asks for the audiences of room h; these tests give them by token or room. */
for (const isState of [false, true])
  test(`no byte of a message reaches a member without its audience: ${isState ? 'state' : 'history'}, at random`, async () => {
    let messages = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(STEP, { minLength: 20, maxLength: 120 }), async (steps) => {
        const model = new Model(isState);
        for (const { connection } of model.members) {
          const own = connection.audiencesIn.bind(connection);
          connection.audiencesIn = () => own(model.room);
        }
        for (const step of steps) {
          await model.run(step);
          if (step.n % 3 === 0) await settle(1);
        }
        await model.end();
        for (const { transport } of model.members) assert.deepEqual(transport.failures, []);
        for (const { seen } of model.members) messages += seen.length;
        checkComplete(model);
      }),
      { numRuns: 150, includeErrorInReport: true },
    );
    assert.ok(messages > 500, `${messages} messages`);
  });

/**
 * What a client of the protocol has read.
 * @param {FakeTransport} transport with native frames @param {boolean} isState
 */
function placeOf(transport, isState) {
  const place = { map: new Map(), epoch: '', offset: 0 };
  for (const { type, key, payload, epoch, offset, recovered } of transport.messages()) {
    if (!['joined', 'message', 'resync', 'position', 'reset', 'synced'].includes(type)) continue;
    const isNew = type === 'reset' || (type === 'joined' && !recovered);
    if (isNew) place.map.clear();
    // In a state, a reply and a reset come before what they name.
    if (isState && isNew) Object.assign(place, { epoch, offset: 0 });
    else if (isState && type === 'joined') continue;
    else if (type !== 'message' || epoch !== place.epoch || offset > place.offset)
      Object.assign(place, { epoch, offset });
    if (type !== 'message' || key === undefined) continue;
    if (payload === null) place.map.delete(key);
    else place.map.set(key, payload);
  }
  return place;
}

/** @param {Model} model at rest */
function checkComplete(model) {
  const { hub, broker, scheduler } = model.built;
  const room = hub.rooms.get(model.room);
  const { epoch, offset } = broker.stream(model.room);
  for (const { connection, transport } of model.members) {
    if (transport.format !== FORMAT.FRAMES || !room?.has(connection)) continue;
    const place = placeOf(transport, model.isState);
    assert.equal(place.epoch, epoch);
    if (!model.isState) {
      assert.equal(place.offset, offset, 'a member has an older position');
      continue; // no position proves a state, so none is told
    }
    const sync = /** @type {any} */ (scheduler.syncs.get(model.room));
    const visible = [...sync.log.byKey.values()].filter(
      ({ publication, isTombstone }) =>
        !isTombstone && connection.audiencesIn(model.room).maySee(publication),
    );
    assert.deepEqual(
      [...place.map].sort(),
      visible.map(({ key, publication }) => [key, JSON.parse(payloadText(publication))]).sort(),
    );
  }
}
