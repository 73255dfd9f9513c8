// main.go PORT KEY SECRET WEBHOOK: the module pusher-http-go: every request, and a webhook.
//
// WEBHOOK is a file with the headers and the body of a webhook, as JSON. The last line is `ok`.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"

	"github.com/pusher/pusher-http-go/v5"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("%#v, not %#v", got, wanted))
	}
}

func main() {
	port, key, secret, webhook := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	client := pusher.Client{
		AppID: "1234", Key: key, Secret: secret, Host: "127.0.0.1:" + port,
		EncryptionMasterKeyBase64: "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
	}

	must(0, client.Trigger("news", "greeting", map[string]string{"text": "über+a&b c=d %20"}))
	must(0, client.TriggerMulti([]string{"news", "sport"}, "to both", "plain"))
	must(0, client.Trigger("private-encrypted-news", "secret", "1"))
	must(0, client.SendToUser("ann", "hello", "2"))
	info := "user_count"
	counted := must(client.TriggerWithParams("presence-room", "e", "3", pusher.TriggerParams{Info: &info}))
	equal(*counted.Channels["presence-room"].UserCount, 1)
	must(client.TriggerBatch([]pusher.Event{
		{Channel: "news", Name: "first", Data: "1"},
		{Channel: "news", Name: "second", Data: "2"},
	}))

	prefix := "presence-"
	channels := must(client.Channels(pusher.ChannelsParams{FilterByPrefix: &prefix, Info: &info}))
	equal(channels.Channels["presence-room"].UserCount, 1)
	one := must(client.Channel("presence-room", pusher.ChannelParams{Info: &info}))
	equal(one.Occupied, true)
	equal(one.UserCount, 1)
	users := must(client.GetChannelUsers("presence-room"))
	equal(len(users.List), 1)
	equal(users.List[0].ID, "ann")
	if _, err := client.GetChannelUsers("news"); err == nil {
		panic("users of a public channel")
	}

	var received struct {
		Headers map[string]string
		Body    string
	}
	must(0, json.Unmarshal(must(os.ReadFile(webhook)), &received))
	header := http.Header{}
	for name, value := range received.Headers {
		header.Set(name, value)
	}
	event := must(client.Webhook(header, []byte(received.Body)))
	if len(event.Events) == 0 {
		panic("no events")
	}
	fmt.Println("ok")
}
