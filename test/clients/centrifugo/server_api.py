"""Every method of Centrifugo's server API by its SDK for Python. Arguments: address, key, user."""

import sys

from cent import (
    BatchRequest,
    BroadcastRequest,
    CentApiResponseError,
    CentUnauthorizedError,
    ChannelsRequest,
    Client,
    Disconnect,
    DisconnectRequest,
    HistoryRemoveRequest,
    HistoryRequest,
    InfoRequest,
    PresenceRequest,
    PresenceStatsRequest,
    PublishRequest,
    RefreshRequest,
    StreamPosition,
    SubscribeRequest,
    UnsubscribeRequest,
)

address, key, user = sys.argv[1:]
client = Client(address, key)


def code_of(call, *request):
    try:
        call(*request)
    except CentApiResponseError as error:
        return error.code
    return 0


first = client.publish(PublishRequest(channel="h", data={"n": 1}))
assert first.offset == 1 and first.epoch, first
answer = client.broadcast(BroadcastRequest(channels=["h", "plain"], data={"n": 2}))
assert answer.responses[0].result.offset == 2, answer
assert answer.responses[1].error is None, answer
history = client.history(HistoryRequest(channel="h", limit=10))
assert [one.data["n"] for one in history.publications] == [1, 2], history
since = StreamPosition(offset=1, epoch=history.epoch)
later = client.history(HistoryRequest(channel="h", limit=10, since=since))
assert [one.offset for one in later.publications] == [2], later
wrong = HistoryRequest(channel="h", since=StreamPosition(offset=1, epoch="other"))
assert code_of(client.history, wrong) == 112
assert code_of(client.history, HistoryRequest(channel="plain")) == 108
presence = client.presence(PresenceRequest(channel="p")).presence
assert [one.user for one in presence.values()] == [user], presence
stats = client.presence_stats(PresenceStatsRequest(channel="p"))
assert (stats.num_clients, stats.num_users) == (1, 1), stats
channels = client.channels(ChannelsRequest(pattern="p*")).channels
assert channels["p"].num_clients == 1, channels
nodes = client.info(InfoRequest()).nodes
assert nodes[0].num_clients == 1 and nodes[0].version, nodes
client.subscribe(SubscribeRequest(user=user, channel="given"))
client.unsubscribe(UnsubscribeRequest(user=user, channel="given"))
client.refresh(RefreshRequest(user=user, expire_at=4_000_000_000))
batch = client.batch(
    BatchRequest(
        requests=[
            PublishRequest(channel="h", data={"n": 3}),
            InfoRequest(),
            HistoryRemoveRequest(channel="h"),
        ]
    )
)
assert batch.replies[0].offset == 3, batch
assert batch.replies[1].nodes, batch
client.history_remove(HistoryRemoveRequest(channel="h"))
bye = Disconnect(code=4200, reason="bye")
client.disconnect(DisconnectRequest(user=user, disconnect=bye))
assert code_of(client.publish, PublishRequest(channel="", data={})) == 107
try:
    Client(address, "x" * 40).info(InfoRequest())
    raise AssertionError("another key is accepted")
except CentUnauthorizedError:
    pass
print("done")
