// FirstPublish.java: a backend in Java publishes a message with the client of the JDK, as it is:
//
//   java test/clients/FirstPublish.java URL SECRET ROOM
//
// The client offers HTTP/2 in its first request (`Upgrade: h2c`).

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class FirstPublish {
  public static void main(String[] args) throws Exception {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(args[0] + "/api/publish"))
            .header("Authorization", "Bearer " + args[1])
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(
                "{\"room\":\"" + args[2] + "\",\"payload\":{\"from\":\"java\"}}"))
            .build();
    HttpResponse<String> answer =
        HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    System.out.println(answer.statusCode() + " " + answer.body());
  }
}
