import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/** Step {@code group}: three processes ({@link Member}), one of which is killed. */
final class Members implements AutoCloseable {
    private static final long WAIT_SECONDS = 90;

    private record Event(int member, String line) {
    }

    /** Produces ten records to each of the six partitions. */
    interface Produce {
        void tenEach(int round) throws Exception;
    }

    private final List<Process> processes = new ArrayList<>();
    private final List<Set<Integer>> assigned = new ArrayList<>();
    private final Set<String> read = new HashSet<>();
    private final BlockingQueue<Event> events = new LinkedBlockingQueue<>();

    static Map<String, Object> play(List<String> command, Produce produce) throws Exception {
        try (Members members = new Members()) {
            for (int i = 0; i < 3; i++) {
                members.start(command);
            }
            members.until("two partitions each", () -> members.eachHas(2, 0, 1, 2));
            produce.tenEach(1);
            members.until("sixty records", () -> members.read.size() == 60);
            members.processes.get(0).destroyForcibly().waitFor();
            produce.tenEach(2);
            members.until("three partitions each", () -> members.eachHas(3, 1, 2));
            members.until("all records", () -> members.read.size() == 120);
            members.leave(1);
            members.until("all partitions", () -> members.eachHas(6, 2));
            members.leave(2);
            return Json.object("each", List.of(2, 2, 2), "after_kill", List.of(3, 3), "after_leave", List.of(6),
                    "read", members.read.size());
        }
    }

    private void start(List<String> command) throws IOException {
        Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        int number = processes.size();
        processes.add(process);
        assigned.add(Set.of());
        Thread follow = new Thread(() -> {
            InputStreamReader bytes = new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8);
            try (BufferedReader lines = new BufferedReader(bytes)) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    events.add(new Event(number, line));
                }
            } catch (IOException error) {
                // Its end closes the stream under this reader; whoever waits for more of it is told by the deadline.
                return;
            }
        });
        follow.setDaemon(true);
        follow.start();
    }

    /** Follows what the members say: `assigned 0 1` or `read PARTITION OFFSET`. */
    private void until(String what, BooleanSupplier reached) throws InterruptedException, TimeoutException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_SECONDS);
        while (!reached.getAsBoolean()) {
            Event event = events.poll(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            if (event == null) {
                throw new TimeoutException("waiting for " + what + ": " + assigned + ", read " + read.size());
            }
            String[] words = event.line.split(" ");
            if (words[0].equals("assigned")) {
                Set<Integer> partitions = new HashSet<>();
                for (int i = 1; i < words.length; i++) {
                    partitions.add(Integer.valueOf(words[i]));
                }
                assigned.set(event.member, partitions);
            } else {
                read.add(event.line);
            }
        }
    }

    private boolean eachHas(int count, int... members) {
        Set<Integer> all = new HashSet<>();
        for (int member : members) {
            if (assigned.get(member).size() != count) {
                return false;
            }
            all.addAll(assigned.get(member));
        }
        return all.size() == count * members.length;
    }

    private void leave(int number) throws IOException, InterruptedException, TimeoutException {
        processes.get(number).getOutputStream().close();
        if (!processes.get(number).waitFor(WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new TimeoutException("a member does not leave");
        }
    }

    @Override
    public void close() {
        processes.forEach(Process::destroyForcibly);
    }
}
