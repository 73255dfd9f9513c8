// relay-wire.js: the messages between a worker and the relay in the primary, over a Unix socket.
//
// Both ends share this file. A message is a big-endian u32 length of what follows, one byte that names it, and its
// fields. Rooms and addresses are ASCII. Requests carry a number that the reply returns.
//
//   worker -> relay                                   relay -> worker
//   HELLO       u32 pid                               REPLY        u32 request, u8 ok, u32 value
//   SUBSCRIBE   u32 request, room                     PUBLICATION  u8 room length, room, bytes
//   UNSUBSCRIBE room
//   PUBLISH     u8 room length, room, bytes           (no reply of its own: SYNC's tells that all before it are accepted)
//   SYNC        u32 request
//   ACQUIRE     u32 request, u32 cap, u8 force, address    reply: ok = admitted, value = connections of that address
//   RELEASE     address
//   CONNECTIONS u32 how many this worker has
//   COUNT       u32 request                                reply: value = connections of all workers

export const OP = Object.freeze({
  HELLO: 1,
  SUBSCRIBE: 2,
  UNSUBSCRIBE: 3,
  PUBLISH: 4,
  SYNC: 5,
  ACQUIRE: 6,
  RELEASE: 7,
  CONNECTIONS: 8,
  COUNT: 9,
  REPLY: 16,
  PUBLICATION: 17,
});
