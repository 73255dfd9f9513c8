// plants.js: faults that the checker must find in records of publishers and subscribers.

import { NO_REPLY } from './record.js';
import { accepted, position, somewhere, withoutMarker } from './story.js';

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS = [
  {
    fault: 'a message that nobody published',
    expected: ['I1'],
    act: (model) => model.deliver(0, { room: 'p.0', value: 'z:1:p.0' }),
  },
  {
    fault: 'a message of another room',
    expected: ['I1'],
    act: (model) => {
      const [{ value }] = accepted(model, 'p.1', 1);
      model.deliver(0, { room: 'p.0', value });
    },
  },
  {
    fault: 'a message of another room with history',
    expected: ['I1'],
    act: (model) => {
      const [{ value }] = accepted(model, 'h.1', 1);
      model.emit({
        type: 'deliver',
        client: 1,
        room: 'h.0',
        value,
        epoch: 'f'.repeat(16),
        offset: 1,
      });
    },
  },
  {
    fault: 'a refused message is delivered: announced before it is stored',
    expected: ['I2'],
    act: (model) => {
      model.announce(model.publish('a', 'p.0', 'fail'));
      model.settle();
    },
  },
  {
    fault: 'the same with history, and its offset is given away',
    expected: ['I2'],
    act: (model) => model.announce(model.place(model.publish('a', 'h.0', 'fail'))),
  },
  {
    fault: 'a message is refused after it was delivered',
    expected: ['I2'],
    act: (model) => {
      const message = model.invoke('a', 'p.0');
      model.announce(message);
      model.settle();
      model.emit({ type: 'fail', value: message.value, reason: 'UNAVAILABLE' });
    },
  },
  {
    fault: 'a refused message is stored, and the position check delivers it',
    expected: ['I2'],
    act: (model) => {
      model.place(model.publish('a', 'h.0', 'fail'));
      model.settle();
    },
  },
  {
    fault: 'a refused message is stored, and a replay delivers it',
    expected: ['I2'],
    act: (model) => {
      model.close(0);
      model.place(model.publish('a', 'h.0', 'fail'));
      model.open(0, 0);
    },
  },
  {
    fault: 'a refused message is delivered minutes later in a plain room',
    expected: ['I2'],
    act: (model) => {
      const message = model.publish('a', 'p.0', 'fail');
      accepted(model, 'p.0', 3);
      model.wait();
      model.announce(message);
      model.settle();
    },
  },
  {
    fault: 'a refused message comes without an offset in a room with history',
    // That it has none is a fault of its own.
    expected: ['I2', 'I3'],
    act: (model) => {
      const { value, room } = model.publish('a', 'h.0', 'fail');
      model.deliver(0, { value, room });
    },
  },
  {
    fault: 'a refused message comes at an offset that the client has passed, which drops it',
    expected: ['I2', 'I3'],
    act: (model) => {
      const [{ epoch, offset }] = accepted(model, 'h.0', 1);
      const { value, room } = model.publish('a', 'h.0', 'fail');
      for (const client of [0, 1, 2, 3])
        model.emit({ type: 'repeat', client, room, value, epoch, offset });
    },
  },
  {
    fault: 'a message is refused after its time, and had been delivered',
    expected: ['I2'],
    act: (model) => {
      const { value } = model.publish('a', 'h.0', 'stored');
      model.settle();
      model.emit({ type: 'fail', value, reason: 'UNAVAILABLE, late' });
    },
  },
  {
    fault: 'one client gets another message at an offset',
    expected: ['I3'],
    act: (model) => {
      const { epoch, offset } = model.publish('a', 'h.0');
      const { value } = model.publish('b', 'h.0', 'lost');
      model.pump(0);
      for (const message of model.workers[1].bus)
        if (message.offset === offset && message.epoch === epoch) {
          model.workers[1].bus = [{ ...message, value }];
        }
    },
  },
  {
    fault: 'a message of a room with history without an offset',
    expected: ['I3'],
    act: (model) => {
      const { value, room } = model.publish('a', 'h.0', 'stored');
      model.settle();
      model.emit({ type: 'deliver', client: 0, room, value });
    },
  },
  {
    fault: 'an offset is given to two accepted messages',
    // Workers and clients take the second for a repeat and drop it: no client gets it.
    expected: ['I3', 'I7'],
    act: (model) => {
      const [{ epoch, offset }] = accepted(model, 'h.0', 1);
      const { value, room } = model.invoke('b', 'h.0');
      model.announce({ value, room, epoch, offset });
      model.emit({ type: 'ok', value, epoch, offset });
    },
  },
  {
    fault: 'the fence is off: a restart loses messages and the epoch goes on',
    expected: ['I3', 'I7'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.faults.fenceOff = true;
      model.crash(3, ['h.0']);
      for (let i = 0; i < 3; i++) model.publish('a', 'h.0');
      model.settle();
    },
  },
  {
    fault: 'a message is delivered twice in a room with history',
    expected: ['I4'],
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room.startsWith('h.'));
      events.splice(at, 0, events[at]);
    },
  },
  {
    fault: 'a message is delivered twice in a plain room',
    expected: ['I4'],
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room.startsWith('p.'));
      events.splice(at, 0, events[at]);
    },
  },
  {
    fault: 'a message is sent twice with history, and the client drops it',
    expected: ['I4'],
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room.startsWith('h.'));
      const event = /** @type {import('./story.js').Delivery} */ (events[at]);
      events.splice(at + 1, 0, { ...event, type: 'repeat' });
    },
  },
  {
    fault: 'two messages change places on the wire, and the client drops the one that is late',
    expected: ['I4', 'I5'],
    act: (model) => {
      const [first, second] = [model.publish('a', 'h.0'), model.publish('b', 'h.0')];
      model.workers[1].bus.splice(-2, 2, second, first);
      // No healing: that would read messages under way from the store.
      model.workers[1].positions.delete('h.0');
      model.pump(1);
      model.workers[1].positions.set('h.0', {
        epoch: String(second.epoch),
        last: Number(second.offset),
      });
    },
  },
  {
    fault: 'one of a thousand is dropped',
    expected: ['I5'],
    act: (model) => {
      for (let i = 0; i < 500; i++) accepted(model, 'h.0', 2);
    },
    edit: (events, pick) => {
      const at = somewhere(events, pick, ({ room }) => room === 'h.0', 1000);
      events.splice(at, 1);
    },
  },
  {
    fault: 'the first message after a reply is dropped',
    expected: ['I5'],
    act: (model) => {
      model.close(0);
      model.open(0, 0);
      for (let i = 0; i < 2; i++) {
        const message = model.place(model.invoke('a', 'h.0'));
        model.acks.push({ ...message, type: 'ok' });
        for (const { positions } of model.workers) positions.set('h.0', position(message));
        for (const client of i === 0 ? [1, 2, 3] : [0, 1, 2, 3]) model.hand(client, message);
      }
    },
  },
  {
    fault: 'a message comes before its room’s reply',
    expected: ['I5'],
    act: (model) => {
      model.close(0);
      const message = model.place(model.invoke('a', 'h.0'));
      model.acks.push({ ...message, type: 'ok' });
      model.hand(0, message);
      model.announce(message);
    },
  },
  {
    fault: 'an accepted message is never stored',
    // A hole for everybody: each of them skips it, and it is lost.
    expected: ['I5', 'I7'],
    act: (model) => {
      const message = model.place(model.invoke('a', 'h.0'));
      model.acks.push({ ...message, type: 'ok' });
      for (const { positions } of model.workers) positions.set('h.0', position(message));
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'recovered:true is forged: the history is trimmed',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      accepted(model, 'h.0', 12);
      model.faults.forgesRecovery = true;
      model.open(0, 0);
      model.faults.forgesRecovery = false;
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'recovered:true is forged: the epoch is another',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      accepted(model, 'h.1', 1);
      model.close(0);
      model.crash(1);
      model.settle();
      model.faults.forgesRecovery = true;
      model.open(0, 0);
    },
  },
  {
    fault: 'recovered:true in an epoch that had ended and is used again',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      model.close(0);
      const ended = /** @type {import('./model.js').Stored} */ (model.store.get('h.0'));
      model.crash(1, ['h.0']);
      accepted(model, 'h.0', 2);
      model.t += 11_000_000;
      model.store.set('h.0', ended);
      model.open(0, 0);
      // So that nothing comes of it later on.
      model.crash(0, ['h.0']);
      model.settle();
    },
  },
  {
    fault: 'recovered:true from an offset above the top',
    expected: ['I6'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.close(0);
      Object.assign(model.faults, { fenceOff: true, forgesRecovery: true });
      model.crash(3);
      model.open(0, 0);
      // So that nothing comes of it later on.
      Object.assign(model.faults, { fenceOff: false, forgesRecovery: false });
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'recovered:true to one who did not ask',
    expected: ['I6'],
    edit: (events) => {
      const reply = events.find(({ type }) => type === 'reply');
      Object.assign(reply ?? {}, { recovered: true });
    },
  },
  {
    fault: 'a replay ends before the reply’s offset',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      accepted(model, 'h.0', 3);
      model.faults.cutsReplays = true;
      model.open(0, 0);
      model.faults.cutsReplays = false;
      accepted(model, 'h.0', 1);
    },
  },
  {
    fault: 'a replay never ends, nor does anything else come',
    expected: ['I6'],
    act: (model) => {
      model.close(0);
      model.close(2);
      accepted(model, 'h.0', 3);
      model.faults.cutsReplays = true;
      model.open(0, 0);
      model.faults.cutsReplays = false;
      model.wait();
      model.close(0);
    },
  },
  {
    fault: 'a worker is mute, and its clients leave it after a while',
    expected: ['I7'],
    act: (model) => {
      model.workers[1].isMute = true;
      accepted(model, 'h.0', 3);
      model.wait();
      model.close(1);
      model.workers[1].isMute = false;
    },
  },
  {
    fault: 'a client does not get the marker of a room with history',
    expected: ['I8'],
    edit: (events) => withoutMarker(events, 'h.0'),
  },
  {
    fault: 'a client does not get the marker of a plain room',
    expected: ['I8'],
    edit: (events) => withoutMarker(events, 'p.0'),
  },
  {
    fault: 'a marker is late',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'deliver');
      for (const event of events.slice(at)) event.t += 16_000_000;
    },
  },
  {
    fault: 'a marker is not accepted',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'ok');
      const { value } = /** @type {{value: string}} */ (/** @type {unknown} */ (events[at]));
      events[at] = { t: events[at].t, type: 'info', value, reason: 'OUTCOME_UNKNOWN' };
    },
  },
  {
    fault: 'a client does not come back',
    expected: ['I8'],
    edit: (events) => {
      const at = events.findLastIndex(({ type }) => type === 'stop');
      const lost = events.filter(
        (event, i) => !(i > at && 'client' in event && event.client === 2),
      );
      lost.splice(at + 1, 0, { t: events[at].t, type: 'close', client: 2, code: 1006 });
      events.splice(0, events.length, ...lost);
    },
    act: (model) => model.cut(0),
  },
  {
    fault: 'without markers: the end of a stream is not delivered',
    expected: ['I8'],
    act: (model) => {
      model.workers[1].isMute = true;
      accepted(model, 'h.0', 1);
      model.wait();
    },
    edit: (events) => {
      // Without the markers the end comes right after the wait, and nothing heals.
      const at = events.findIndex((event) => event.type === 'invoke' && event.marker === true);
      const end = events.findIndex(({ type }) => type === 'end');
      events.splice(at, end - at);
    },
  },
  {
    fault: 'two messages of a publisher change places in a plain room',
    expected: ['I9'],
    act: (model) => {
      model.wait();
      accepted(model, 'p.0', 1);
      const [first, second] = [model.publish('a', 'p.0'), model.publish('a', 'p.0')];
      model.workers[1].bus.splice(-2, 2, second, first);
      model.settle();
    },
  },
  {
    fault: 'two messages of a publisher change places in the store',
    expected: ['I9'],
    act: (model) => {
      const first = model.invoke('a', 'h.0');
      const { epoch, top } = /** @type {import('./model.js').Stored} */ (model.store.get('h.0'));
      model.emit({ type: 'ok', ...first, epoch, offset: top + 2 });
      model.announce(model.place(model.publish('a', 'h.0', 'lost')));
      model.announce(model.place(first));
      model.settle();
    },
  },
  {
    fault: 'two messages that are sent at once change places in the store',
    expected: ['I9'],
    act: (model) => {
      const [first, second] = [model.invoke('a', 'h.0'), model.invoke('a', 'h.0')];
      for (const message of [second, first]) {
        model.announce(model.place(message));
        model.emit({ type: 'ok', ...message });
      }
      model.settle();
    },
  },
  {
    fault: 'a message of a plain room that is accepted in calm reaches nobody',
    expected: ['I7'],
    act: (model) => {
      model.wait();
      model.emit({ type: 'ok', ...model.invoke('a', 'p.0') });
      model.wait();
    },
  },
  {
    fault: 'the same reaches only one of those in the room',
    expected: ['I7'],
    act: (model) => {
      model.wait();
      const message = model.invoke('a', 'p.0');
      model.emit({ type: 'ok', ...message });
      model.hand(0, message);
      model.wait();
    },
  },
  {
    fault: 'the ack of a later message has a lower offset',
    expected: ['I9'],
    act: (model) => {
      const [first, second] = [model.invoke('a', 'h.0'), model.publish('b', 'h.0', 'lost')];
      const { epoch, top } = /** @type {import('./model.js').Stored} */ (model.store.get('h.0'));
      model.emit({ type: 'ok', ...first, epoch, offset: top + 2 });
      const third = model.invoke('a', 'h.0');
      model.emit({ type: 'ok', ...third, epoch, offset: top + 1 });
      // Connected clients get neither message; they get a `resync`.
      void second;
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'a message is stored twice',
    expected: ['I10'],
    act: (model) => {
      const message = model.publish('a', 'h.0');
      model.announce(model.place({ value: message.value, room: 'h.0' }));
    },
  },
  {
    fault: 'a new epoch is passed on without a word',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 2);
      model.crash(2);
      model.faults.ignoresEpochs = true;
      accepted(model, 'h.0', 1);
      model.faults.ignoresEpochs = false;
      accepted(model, 'h.1', 1);
    },
  },
  {
    fault: 'a client is not told that an epoch is over, and hears no more',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 1);
      model.workers[1].isMute = true;
      model.crash(1);
      accepted(model, 'h.0', 1);
      model.wait();
      model.close(1);
      model.close(3);
      model.workers[1].isMute = false;
    },
  },
  {
    fault: 'the fence is off, and who comes back is told an offset it had passed',
    expected: ['I11'],
    act: (model) => {
      accepted(model, 'h.0', 3);
      model.close(0);
      model.faults.fenceOff = true;
      model.crash(3);
      model.open(0, 0);
      model.faults.fenceOff = false;
      model.crash(0);
      model.settle();
    },
  },
  {
    fault: 'a connection is still counted when all are closed',
    expected: ['I13'],
    edit: (events) => {
      const gauges = events.findLast(({ type }) => type === 'gauges');
      Object.assign(gauges ?? {}, { values: { connections: 1 } });
    },
  },
  {
    fault:
      'a message of unknown outcome takes effect behind later accepted ones, in a room with history',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0');
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same, and a replay shows it',
    expected: ['I14'],
    act: (model) => {
      model.close(0);
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0');
      model.place(late);
      model.open(0, 0);
    },
  },
  {
    fault: 'the same, and the ack of the one that overtook it comes last',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      model.publish('a', 'h.0', 'ok', { isLate: true });
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same, minutes later',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'h.0', 'lost');
      accepted(model, 'h.0', 3);
      model.wait();
      model.announce(model.place(late));
      model.settle();
    },
  },
  {
    fault: 'the same in a plain room',
    expected: ['I14'],
    act: (model) => {
      const late = model.publish('a', 'p.0', 'lost');
      model.publish('a', 'p.0');
      model.announce(late);
      model.settle();
    },
  },
  {
    fault: 'no publish is accepted for long, and nobody is told',
    expected: ['I15'],
    act: (model) => {
      model.faults.hidesOutages = true;
      model.publish('a', 'p.0');
      model.publish('a', 'p.0', 'lost');
      model.wait(true);
    },
  },
  {
    fault: 'a publish is never answered',
    expected: ['I31'],
    act: (model) => {
      const { value } = model.invoke('a', 'p.0');
      model.emit({ type: 'info', value, reason: NO_REPLY });
      model.wait();
    },
  },
  {
    fault: 'the same at the run’s end',
    expected: ['I15', 'I8'],
    act: (model) => {
      model.faults.hidesOutages = true;
      model.publish('a', 'p.0');
      model.wait(true);
    },
    edit: (events) => {
      for (const event of events) {
        if (event.type === 'ok' && event.value[0] === 'm')
          Object.assign(event, { type: 'fail', reason: 'UNAVAILABLE' });
      }
      // Markers that are refused must not arrive either, nor be recorded.
      const without = events.filter(
        (event) =>
          !((event.type === 'deliver' || event.type === 'recorded') && event.value[0] === 'm'),
      );
      events.splice(0, events.length, ...without);
    },
  },
];
