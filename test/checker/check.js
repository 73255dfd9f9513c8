#!/usr/bin/env node
// check.js: compares a record with the invariants and prints the findings.
//
//   node test/checker/check.js record.jsonl
//
// Exits with 0 if the record is complete and no invariant was violated.

import { checkRecord, printReport } from './report.js';

const [path, ...more] = process.argv.slice(2);
if (path === undefined || more.length > 0) {
  console.error('usage: node test/checker/check.js record.jsonl');
  process.exit(64);
}
const report = checkRecord(path);
printReport(report);
process.exit(report.isClean ? 0 : 1);
