import java.io.File;
import java.net.InetSocketAddress;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** ZooKeeper and a broker in one process: arguments are ZooKeeper's directory, its port, and the broker's properties. */
public class OldKafka {
    public static void main(String[] args) throws Exception {
        File data = new File(args[0]);
        NIOServerCnxnFactory factory = new NIOServerCnxnFactory();
        factory.configure(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1])), 100);
        factory.startup(new ZooKeeperServer(data, data, 2000));
        kafka.Kafka.main(new String[] {args[2]});
    }
}
