// plants-of-audiences.js: faults that the checker must find in records of messages for an audience.

import { AUDIENCE_MEMBERS } from './audience-model.js';

/** @param {import('./audience-model.js').AudienceModel} audiences */
function everybodyIsIn(audiences) {
  for (const client of AUDIENCE_MEMBERS) if (!audiences.open.has(client)) audiences.toggle(client);
}

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS_OF_AUDIENCES = [
  {
    fault: 'a live message for an audience reaches a member without it',
    expected: ['I29'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      audiences.leaks = true;
      audiences.publish(true);
    },
  },
  {
    fault: 'a replay has a message for an audience that the member does not hold',
    expected: ['I29'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      for (const client of AUDIENCE_MEMBERS) audiences.toggle(client);
      audiences.publish(true);
      audiences.leaks = true;
      everybodyIsIn(audiences);
    },
  },
  {
    fault: 'a message that all may see is hidden from them, and the next one comes',
    expected: ['I30'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      audiences.hides = true;
      audiences.publish(false);
      audiences.hides = false;
      audiences.publish(false);
    },
  },
  {
    fault: 'the last message for an audience does not reach those who hold it',
    expected: ['I30'],
    act: (model) => {
      everybodyIsIn(model.audiences);
      model.audiences.hides = true;
      model.audiences.publish(true);
      model.wait(false);
    },
  },
  {
    fault: 'a member that saw nothing for long is not recovered',
    expected: ['I30'],
    act: (model) => {
      const { audiences } = model;
      everybodyIsIn(audiences);
      model.wait(false);
      audiences.publish(true);
      audiences.forgets = true;
      for (const client of AUDIENCE_MEMBERS) audiences.toggle(client);
      everybodyIsIn(audiences);
    },
  },
  {
    fault: 'a member gets a message for an audience that it has lost',
    expected: ['I29'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      audiences.hold(AUDIENCE_MEMBERS[0], []);
      audiences.leaks = true;
      audiences.publish(true);
    },
  },
  {
    fault: 'a page of the history has a message for others',
    expected: ['I29'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      audiences.publish(true);
      audiences.read(AUDIENCE_MEMBERS[1], (place) => place === audiences.log.length - 1);
    },
  },
  {
    fault: 'a page of the history lacks a message in its middle',
    expected: ['I30'],
    act: ({ audiences }) => {
      everybodyIsIn(audiences);
      for (let i = 0; i < 3; i++) audiences.publish(false);
      const { length } = audiences.log;
      audiences.read(AUDIENCE_MEMBERS[1], (place) => place === length - 3 || place === length - 1);
    },
  },
  {
    fault: 'a webhook does not say for whom a message is',
    expected: ['I29'],
    act: ({ audiences }) => {
      audiences.publish(true);
      audiences.report([]);
    },
  },
  {
    fault: 'a message for others is taken for a repeat',
    expected: ['I30'],
    act: ({ audiences }) => {
      audiences.publish(false);
      audiences.repeat();
    },
  },
];
