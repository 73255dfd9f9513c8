// spec-env.cjs: the module `testenv` of pusher-js's spec: where it runs.

module.exports = 'node';
