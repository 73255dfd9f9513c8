// handover.js: the configuration of a worker or the courier, from the message of the primary.
//
// Only the primary reads settings and the files that they name. So a process that replaces a dead
// one has the settings of the others, even if a file has changed since, and none of them loads what
// only readers need. The message is JSON. The certificate and the hooks are no part of it.

import { pusherSettings } from './pusher.js';
import { WebhookSettings } from './webhooks.js';

/** @import { Config } from './settings.js' */
/** A Config that was JSON in between. @typedef {{[K in keyof Config]: unknown}} Sent */

/** @param {Sent} sent @returns {Config} */
export function receivedConfig(sent) {
  const { pusher, webhooks, ...others } = /** @type {Config} */ (deepFreeze(sent));
  return Object.freeze({
    ...others,
    pusher: pusher === null ? null : pusherSettings(pusher.apps, pusher.pathPrefix),
    webhooks:
      webhooks === null
        ? null
        : new WebhookSettings(webhooks.endpoints, webhooks.publicOnly, webhooks.countedApps),
  });
}

/** @template T @param {T} value JSON @returns {T} */
function deepFreeze(value) {
  if (typeof value !== 'object' || value === null) return value;
  for (const part of Object.values(value)) deepFreeze(part);
  return Object.freeze(value);
}
