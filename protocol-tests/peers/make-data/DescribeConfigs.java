import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.common.config.ConfigResource;

/** DescribeConfigs BOOTSTRAP broker|topic [NAME]: every setting with its source and synonyms, as TSV in order of name. */
public class DescribeConfigs {
    public static void main(String[] args) throws Exception {
        var type = args[1].equals("topic") ? ConfigResource.Type.TOPIC : ConfigResource.Type.BROKER;
        var resource = new ConfigResource(type, args.length > 2 ? args[2] : "");
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            var entries = admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries();
            entries.stream().sorted(Comparator.comparing(ConfigEntry::name)).map(DescribeConfigs::line).forEach(System.out::println);
        }
    }

    static String line(ConfigEntry entry) {
        var synonyms = entry.synonyms().stream()
            .map(synonym -> synonym.source() + ":" + synonym.name() + "=" + synonym.value())
            .collect(Collectors.joining(";"));
        return String.join("\t", entry.name(), entry.value() == null ? "\\N" : entry.value(), entry.source().toString(),
            entry.isReadOnly() ? "ro" : "rw", entry.isSensitive() ? "sens" : "-", entry.type().toString(), synonyms,
            entry.documentation() == null ? "nodoc" : "doc");
    }
}
