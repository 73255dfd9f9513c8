-- outbox.sql: messages that wait for Fanfare. A transaction that changes your tables writes its
-- messages here, too: either both are kept, or neither is.

CREATE TABLE outbox (
  -- The trigger below gives the number, because a default would come before its lock.
  id bigint PRIMARY KEY,
  room text NOT NULL CHECK (room ~ '^[A-Za-z0-9_.:@/-]{1,200}$'),
  payload json NOT NULL,
  -- Relays share the work by shards. All messages of a room are in the same one.
  shard smallint NOT NULL GENERATED ALWAYS AS (abs(hashtext(room) % 16)) STORED,
  -- Why Fanfare refuses the message for good. Such a row stays until you delete or correct it.
  error text
);
CREATE INDEX outbox_waiting ON outbox (shard, id) WHERE error IS NULL;

CREATE TABLE outbox_shard (shard smallint PRIMARY KEY);
INSERT INTO outbox_shard SELECT generate_series(0, 15);

CREATE SEQUENCE outbox_id;

-- A transaction that writes to a room waits until the one before has ended. So numbers of a room rise
-- in the order of commits, and a relay that sees one has seen all before it.
CREATE FUNCTION outbox_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.room, 0));
  NEW.id := nextval('outbox_id');
  RETURN NEW;
END $$;
CREATE TRIGGER outbox_number BEFORE INSERT ON outbox
  FOR EACH ROW EXECUTE FUNCTION outbox_number();

-- Wakes the relays when the transaction commits.
CREATE FUNCTION outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NOTIFY outbox;
  RETURN NULL;
END $$;
CREATE TRIGGER outbox_wake AFTER INSERT ON outbox
  FOR EACH STATEMENT EXECUTE FUNCTION outbox_wake();
