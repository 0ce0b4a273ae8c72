import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

/** Java's own client: a page, a JSON call, an upload. It offers HTTP/2 and takes HTTP/1.1. */
public class Client {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest page = HttpRequest.newBuilder(URI.create("https://news.example/page")).build();
        System.out.println("page " + client.send(page, BodyHandlers.ofByteArray()).body().length);
        HttpRequest call =
                HttpRequest.newBuilder(URI.create("https://api.openai.com/v1/chat/completions"))
                        .header("Authorization", "Bearer " + System.getenv("OPENAI_API_KEY"))
                        .header("Content-Type", "application/json")
                        .POST(BodyPublishers.ofString("{\"model\":\"m\",\"messages\":[]}"))
                        .build();
        String said = client.send(call, BodyHandlers.ofString()).body();
        System.out.println(said.contains("hello from the stub"));
        byte[] upload = new byte[300000];
        HttpRequest echo =
                HttpRequest.newBuilder(URI.create("https://news.example/echo"))
                        .POST(BodyPublishers.ofByteArray(upload))
                        .build();
        System.out.println("echo " + client.send(echo, BodyHandlers.ofByteArray()).body().length);
    }
}
