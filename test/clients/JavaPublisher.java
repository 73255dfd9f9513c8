// JavaPublisher.java: publishes with Java's HttpClient, as Spring's RestClient does. On plain HTTP it
// offers HTTP/2 (h2c) with its first request: java JavaPublisher.java http://HOST:PORT KEY

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

public class JavaPublisher {
  public static void main(String[] arguments) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    for (int i = 0; i < 3; i++) {
      String body = "{\"room\":\"java\",\"payload\":{\"n\":" + i + "}}";
      HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + "/api/publish"))
          .header("Authorization", "Bearer " + arguments[1])
          .header("Content-Type", "application/json")
          .POST(BodyPublishers.ofString(body)).build();
      int status = client.send(request, BodyHandlers.ofString()).statusCode();
      if (status != 200) throw new AssertionError("status " + status);
    }
    System.out.println("ok");
  }
}
