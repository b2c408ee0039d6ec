import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * An HDFS of one name node and several data nodes on this machine, until standard input closes.
 *
 * Arguments: a folder for its files, and the name or address of each data node. Prints the port of WebHDFS once all
 * is up.
 */
public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        String[] hosts = java.util.Arrays.copyOfRange(arguments, 1, arguments.length);
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(arguments[0]).getAbsolutePath());
        settings.setInt("dfs.replication", 1);
        settings.setLong("dfs.namenode.fs-limits.min-block-size", 65536);
        settings.setLong("dfs.blocksize", 16 << 20);
        settings.set("dfs.permissions.enabled", "true");
        // A data node that has an address of its own listens there; without this, all are on 127.0.0.1.
        settings.set("dfs.datanode.address", "0.0.0.0:0");
        settings.set("dfs.datanode.http.address", "0.0.0.0:0");
        settings.set("dfs.datanode.ipc.address", "0.0.0.0:0");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings)
            .numDataNodes(hosts.length)
            .hosts(hosts)
            .checkDataNodeAddrConfig(true)
            .build();
        cluster.waitActive();
        // So that every user may write.
        cluster.getFileSystem().setPermission(
            new org.apache.hadoop.fs.Path("/"), new org.apache.hadoop.fs.permission.FsPermission((short) 0777));
        System.out.println("port " + cluster.getNameNode().getHttpAddress().getPort());
        System.out.flush();
        while (System.in.read() >= 0) { }
        cluster.shutdown();
        System.exit(0);
    }
}
