// JavaClient.java: Java's own WebSocket client against a Fanfare server: java JavaClient.java URL

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class JavaClient implements WebSocket.Listener {
  private final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
  private final StringBuilder parts = new StringBuilder();

  @Override
  public CompletionStage<?> onText(WebSocket ws, CharSequence data, boolean isLast) {
    parts.append(data);
    if (isLast) {
      heard.add(parts.toString());
      parts.setLength(0);
    }
    ws.request(1);
    return null;
  }

  @Override
  public CompletionStage<?> onPong(WebSocket ws, ByteBuffer body) {
    heard.add("pong of " + body.remaining());
    ws.request(1);
    return null;
  }

  @Override
  public CompletionStage<?> onClose(WebSocket ws, int code, String reason) {
    heard.add("closed " + code);
    return null;
  }

  private void expect(String part) throws Exception {
    String text = heard.poll(5, TimeUnit.SECONDS);
    if (text == null || !text.contains(part)) throw new AssertionError(part + ", not " + text);
  }

  public static void main(String[] args) throws Exception {
    HttpClient client = HttpClient.newHttpClient(); // offers HTTP/2 (h2c) with its first request
    URI health = URI.create(args[0].replace("ws://", "http://").replace("/ws", "/livez"));
    int status = client.send(HttpRequest.newBuilder(health).build(), HttpResponse.BodyHandlers.ofString()).statusCode();
    if (status != 200) throw new AssertionError("a health check got " + status);

    JavaClient java = new JavaClient();
    WebSocket ws = client.newWebSocketBuilder().subprotocols("fanfare").buildAsync(URI.create(args[0]), java).get(5, TimeUnit.SECONDS);
    if (!ws.getSubprotocol().equals("fanfare")) throw new AssertionError("subprotocol " + ws.getSubprotocol());
    ws.sendText("{\"type\":\"join\",\"room\":\"java\"}", true).join();
    java.expect("\"joined\"");
    ws.sendText("{\"type\":\"message\",\"room\":\"java\",", false).join();
    ws.sendText("\"payload\":\"Grüße 🎺 " + "x".repeat(50_000) + "\"}", true).join();
    java.expect("\"payload\":\"Grüße 🎺 x");
    ws.sendPing(ByteBuffer.wrap(new byte[] {1, 2, 3})).join();
    java.expect("pong of 3");
    ws.sendBinary(ByteBuffer.wrap(new byte[] {1}), true).join();
    java.expect("closed 1003");
    System.out.println("ok");
    System.exit(0);
  }
}
