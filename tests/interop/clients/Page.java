import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** One page, by Java's own client ("http") or by java.net.URL ("url"). */
public class Page {
    public static void main(String[] args) throws Exception {
        URI page = URI.create("https://news.example/page");
        if (args[0].equals("http")) {
            HttpRequest request = HttpRequest.newBuilder(page).build();
            HttpClient.newHttpClient().send(request, BodyHandlers.ofByteArray());
        } else {
            page.toURL().openConnection().getInputStream().readAllBytes();
        }
    }
}
