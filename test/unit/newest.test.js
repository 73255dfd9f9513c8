// newest.test.js: what `node test/run.js newest` reads in the output of tests, and what it says.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countsOf, failuresOf, newestOf, verdictOf } from '../helpers/newest.js';

/** As `spec` of node:test prints it. */
const OUTPUT = `Node v26.10.0, FANFARE_FAST_PATHS=off: unit contract
▶ backends
    ✖ redis cluster: rooms are listed (370.951629ms)
✖ backends (42209.60384ms)
ℹ tests 3119
ℹ suites 5
ℹ pass 3090
ℹ fail 2
ℹ cancelled 0
ℹ skipped 27
ℹ todo 0
ℹ duration_ms 247.5

✖ failing tests:

test at test/contract/webhook-transitions.test.js:281:5
✖ redis cluster: rooms are listed (in pages) (370.951629ms)
  Error [BrokerError]: cannot read the rooms
      at #page (file:///tmp/fanfare/src/backend/redis/room-index.js:172:13) {
    code: 'UNAVAILABLE',
    [cause]: Error: Connection is closed.
        at tryConnection (/tmp/fanfare/node_modules/ioredis/built/cluster/index.js:577:40)
  }

test at test/unit/doctor-readings.test.js:219:1
✖ a bucket that is away is a fault (524.416699ms)
  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:
  + actual - expected
  
  + 'the bucket did not answer in time'
  - 'the bucket failed: ECONNREFUSED'
                ^
  
      at TestContext.<anonymous> (file:///tmp/fanfare/test/unit/doctor-readings.test.js:230:10)
slowest files: unit/types 148.7 s
`;

const LISTED = {
  file: 'contract/webhook-transitions',
  name: 'redis cluster: rooms are listed (in pages)',
  reason: 'Error [BrokerError]: cannot read the rooms',
};

test('failed tests are read with their file, name and reason, once for several runs', () => {
  const bucket = {
    file: 'unit/doctor-readings',
    name: 'a bucket that is away is a fault',
    reason: `AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:
+ 'the bucket did not answer in time'
- 'the bucket failed: ECONNREFUSED'
^`,
  };
  assert.deepEqual(failuresOf(OUTPUT + OUTPUT), [LISTED, bucket]);
  assert.deepEqual(failuresOf('ℹ tests 2\nℹ fail 0\n'), []);
});

test('counts of several runs are added', () => {
  assert.deepEqual(countsOf(OUTPUT + OUTPUT), { tests: 6238, pass: 6180, fail: 4, skipped: 54 });
});

test('the newest version is that of the highest numbers, without previews', () => {
  assert.equal(newestOf(['26.9.0', '26.10.0', '27.0.0-rc.1', '24.21.0']), '26.10.0');
  assert.throws(() => newestOf(['1.0.0-beta.1']), /no released version/);
});

test('the verdict says what breaks, what failed by chance, and what was not tried', () => {
  const counts = { tests: 6238, pass: 6236, fail: 2, skipped: 54 };
  assert.deepEqual(verdictOf([{ name: 'ws 8.23.0', note: 'we have the newest already' }]), {
    text: 'ws 8.23.0: we have the newest already.',
    breaks: false,
  });
  assert.deepEqual(
    verdictOf([{ name: 'Node 27.1.0', note: '27 is a new line', counts, chance: [LISTED] }]),
    {
      text: `Node 27.1.0: 6,238 tests, 54 skipped. Nothing breaks.
  Failed once, and passed when it ran again: ${LISTED.file}: ${LISTED.name}
  27 is a new line.`,
      breaks: false,
    },
  );
  assert.deepEqual(verdictOf([{ name: 'Redis 9.0.1', counts, failures: [LISTED] }]), {
    text: `Redis 9.0.1: 6,238 tests, 54 skipped. 1 failed twice:
  ${LISTED.file}: ${LISTED.name}
    ${LISTED.reason}`,
    breaks: true,
  });
  const lost = verdictOf([{ name: 'ws 9.0.0', counts, lost: "Cannot find package 'ws'\n" }]);
  assert.equal(lost.breaks, true);
  assert.match(lost.text, /names no test. Its output ends with:\n {2}Cannot find package 'ws'$/);
});
