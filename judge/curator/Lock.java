import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's InterProcessMutex, with the protocol of `holdfast judge` (docs/JUDGE.md). Each acquisition
 * has a thread of its own, which also releases: the mutex is bound to a thread.
 */
public class Lock {
    /** A field of a request, which is a flat object: its name, and its text or number. */
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":(?:\"([^\"]*)\"|([^,}]*))");
    private static final PrintStream OUTPUT = System.out;

    private final CuratorFramework client;
    /** By the lease's name, where its thread waits for the request to release it. */
    private final Map<String, SynchronousQueue<Map<String, String>>> leases = new ConcurrentHashMap<>();
    private final AtomicLong nextLease = new AtomicLong();

    private Lock(int ttlMs) throws InterruptedException {
        client = CuratorFrameworkFactory.builder()
            .connectString(System.getenv("ZOOKEEPER"))
            // ZooKeeper grants no session below two of its ticks.
            .sessionTimeoutMs(ttlMs)
            .retryPolicy(new ExponentialBackoffRetry(1000, 3))
            .build();
        client.start();
        client.blockUntilConnected();
    }

    private void serve(Map<String, String> request) {
        String key = request.get("key");
        InterProcessMutex mutex = new InterProcessMutex(client, "/" + key);
        try {
            if (!mutex.acquire(Long.parseLong(request.get("wait_ms")), TimeUnit.MILLISECONDS)) {
                answer(request, "\"ok\":false,\"reason\":\"timeout\"");
                return;
            }
            SynchronousQueue<Map<String, String>> releases = new SynchronousQueue<>();
            String lease = ProcessHandle.current().pid() + "-" + nextLease.incrementAndGet();
            leases.put(lease, releases);
            answer(request, "\"ok\":true,\"lease\":\"" + lease + "\"");
            request = releases.take();
            mutex.release();
            answer(request, "\"ok\":true");
        } catch (Exception error) {
            String detail = error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            answer(request, "\"ok\":false,\"reason\":\"error\",\"detail\":\"" + detail + "\"");
        }
    }

    private static void answer(Map<String, String> request, String fields) {
        synchronized (OUTPUT) {
            OUTPUT.print("{\"id\":" + request.get("id") + "," + fields + "}\n");
            OUTPUT.flush();
        }
    }

    private static Map<String, String> parse(String line) {
        Map<String, String> fields = new HashMap<>();
        Matcher matcher = FIELD.matcher(line);
        while (matcher.find()) {
            String text = matcher.group(2);
            fields.put(matcher.group(1), text == null ? matcher.group(3) : text);
        }
        return fields;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        // What a library prints must not reach the judge.
        System.setOut(System.err);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Lock lock = null;
        String line;
        while ((line = lines.readLine()) != null) {
            Map<String, String> request = parse(line);
            switch (request.get("op")) {
                case "init":
                    lock = new Lock(Integer.parseInt(request.get("ttl_ms")));
                    answer(request, "\"ok\":true,\"name\":\"Curator " + arguments[0]
                        + " InterProcessMutex\",\"fencing\":false,\"renews\":true");
                    break;
                case "acquire":
                    Lock serving = lock;
                    Thread thread = new Thread(() -> serving.serve(request));
                    thread.setDaemon(true);
                    thread.start();
                    break;
                default:
                    lock.leases.remove(request.get("lease")).put(request);
            }
        }
        System.exit(0);
    }
}
