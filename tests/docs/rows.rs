//! The rows of the threat model that apply to this version, in one place: what is tried, and what stands against it.
//!
//! The tests that hold a row are not written here: each names its rows itself, in a doc line `Holds: T1, C5.`

/// A group of rows.
pub struct Family {
    /// First letter of its rows' ids.
    pub letter: char,
    /// Whose attacks these are.
    pub title: &'static str,
    /// The rows, in the order of their numbers.
    pub rows: &'static [Row],
}

/// One attack.
pub struct Row {
    /// Letter and number, which never change their meaning.
    pub id: &'static str,
    /// What is tried, in one line.
    pub attack: &'static str,
    /// What stands against it, in one line.
    pub defence: &'static str,
    /// Why no test holds it; nothing where one does.
    pub unheld: Option<&'static str>,
}

const fn row(id: &'static str, attack: &'static str, defence: &'static str) -> Row {
    Row {
        id,
        attack,
        defence,
        unheld: None,
    }
}

impl Row {
    #[allow(dead_code, reason = "only for a row that no test can hold")]
    const fn unheld(self, why: &'static str) -> Self {
        Self {
            unheld: Some(why),
            ..self
        }
    }
}

#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    Family { letter: 'K', title: "A kubeconfig is hostile", rows: &[
        row("K1", "A kubeconfig has a command run to log in.",
            "Any user with `exec`, the current one or not, makes the whole kubeconfig refused; nothing of the hub runs commands."),
        row("K2", "An `auth-provider` runs a command, or asks a server of its own for a token.",
            "Any user with one makes the whole kubeconfig refused."),
        row("K3", "A file of the hub's, such as its own token, is sent to the kubeconfig's server, or its existence is told.",
            "Every field that names a file is refused before anything is opened or connected to, with one answer whether the file exists or not."),
        row("K4", "Verification is switched off, plain HTTP is asked for, or authorities of the system are relied on.",
            "https alone, with an authority that the kubeconfig holds; where it does not fit, no byte of a credential is sent."),
        row("K5", "A proxy of the kubeconfig, or of the hub's environment, sees the traffic.",
            "The field is refused, and connections are made by code that knows no proxies."),
        row("K6", "The server is the hub's own machine, a metadata service or something inside, perhaps by a name that changes after it was checked.",
            "Each address is judged at the moment it is dialled, for each connection; loopback, link-local and metadata addresses are refused, and what an operator denies."),
        row("K7", "The server is the hub's own cluster, under whatever name.",
            "The hub compares what it finds with its own cluster, and refuses itself."),
        row("K8", "The kubeconfig says as whom requests are made.",
            "`as` and its kin are refused; only the hub sets the header, to one ServiceAccount."),
        row("K9", "A value that is huge, or garbage.",
            "256 KiB, one document, UTF-8, sixteen entries in a list; more is refused before it is read."),
        row("K10", "A few bytes of YAML become gigabytes.",
            "Anchors, aliases and merge keys are refused, and depth and parts are counted."),
        row("K11", "Two readers read one kubeconfig differently.",
            "One decoder with a closed list of fields, and connections made of what it found and nothing else; it agrees with kube's own on all that it accepts."),
        row("K12", "A Secret is replaced between check and use, or made anew to inherit another's connection.",
            "A connection belongs to the UID of a Secret and to a key, and is made of one read; it is cut when the Secret, the key or the right goes."),
        row("K13", "Thousands of kubeconfigs, each with a connection.",
            "Each namespace of a tenant has few places, all together have a cap, and who has a place keeps it."),
        row("K14", "Names that resolve slowly use up what resolves names.",
            "Resolving has a deadline and is nobody's thread."),
    ]},
    Family { letter: 'C', title: "A tenant uses the platform's credential, or reaches another tenant", rows: &[
        row("C1", "A task sends the platform's credential to a host of the tenant's choice.",
            "A ClusterRegistry binds the credential to host, scheme and prefix; a host that a task names gets only what is in the task's own namespace; the pusher is told the host a second time and compares."),
        row("C2", "A task has its Job, and the credential with it, put on a cluster where the tenant is administrator.",
            "To a cluster that a tenant brings no credential of the platform ever goes; to one of the platform's only those of registries that it lists."),
        row("C3", "A repository path leads out of the tenant's prefix: `team-a2`, `..`, double slashes, other alphabets.",
            "Repositories are parsed by the OCI grammar and compared segment by segment, by the hub and again in the pod."),
        row("C4", "A tag is taken beforehand, so that somebody else's chart is reported as the result.",
            "A tag that exists counts only when it has the digest of the chart that was rendered; otherwise TagConflict. An error is never read as absence."),
        row("C5", "A Job or Secret with the name of the hub's own lies in wait to be adopted, read or deleted.",
            "Names hold a hash of the task's UID; objects are only created, and one that exists is used only if hub id, task UID, spec hash and UID fit."),
        row("C6", "Fields of a task reach the pod: image, arguments, environment, volumes, node.",
            "Pods are made from a fixed template; what a tenant wrote is in the config Secret and nowhere else."),
        row("C7", "A task has somebody else's Secret mounted, or a value read from another namespace.",
            "Pods mount the task's own config Secret and the one that the platform's registry names; the rest is read as the task's ServiceAccount and copied."),
        row("C8", "A push takes over blobs of somebody else's repository.",
            "The pusher never asks a registry to mount blobs from another repository."),
    ]},
    Family { letter: 'T', title: "A tenant tampers with objects", rows: &[
        row("T1", "A status is forged: a success without a chart, or a Job that is somebody else's.",
            "Admission lets only hubs write it; where that is off, each status carries a seal that nobody else can make, and is put right."),
        row("T2", "The hub's finalizer is taken off, or a foreign one put on.",
            "Admission lets only hubs change it; an orphan is swept by the UID of its task, and a foreign finalizer wakes nobody."),
        row("T3", "Jobs with the hub's labels, or with owners in other namespaces, are made in a tenant's namespace.",
            "The hub watches Jobs in the rendering namespace alone and finds tasks by UID; it sets and follows no ownerReferences."),
        row("T4", "A spec is changed after it was accepted: optional fields, unknown ones, another verb or patch type, in the moment before the Job is made.",
            "A rule on the whole spec, an admission policy, `metadata.generation`, and a hash of the spec on the Job: a changed spec never runs."),
        row("T5", "Names and values at and beyond every size.",
            "Every field has a bound in the schema; labels hold UIDs only; a configuration that fits no Secret is refused."),
        row("T6", "One object that cannot be decoded blinds the hub for all others.",
            "Watches take objects as they are and decode one at a time; one that fails gets a condition, and a record that fails grants nothing."),
        row("T7", "The admission policies are missing or off.",
            "They are a second line: schema, generation, seals and hashes hold without them. Most tests of level A run without them."),
        row("T8", "A namespace is deleted and made again, or relabelled, to inherit what was granted to its name.",
            "A grant by name is recorded with the namespace's UID at first use, before any task runs; labels decide nothing."),
        row("T9", "Answers that differ tell what exists in other namespaces.",
            "What is missing, forbidden or not granted reads the same, word for word."),
    ]},
    Family { letter: 'I', title: "Somebody becomes somebody else", rows: &[
        row("I1", "The hub's right to act for tenants is wide enough to act as anybody.",
            "Tokens and impersonation are granted by Roles, on ServiceAccounts by name; no role of the chart has a wildcard."),
        row("I2", "A ServiceAccount's name smuggles a second header, another namespace or a group.",
            "Names are checked before they are used; one header with one user is sent, and never a group."),
        row("I3", "An empty or missing identity falls through to the hub's own.",
            "What reads for tenants cannot name the hub's client; no identity is a refusal."),
        row("I4", "A kubeconfig that may do everything turns one ServiceAccount into any.",
            "Requests on a tenant's cluster impersonate the task's ServiceAccount and nobody else; a kubeconfig that may do everything is refused."),
        row("I5", "Something on the way strips the impersonation header, and the request runs as the hub.",
            "The hub asks each cluster as whom its requests arrive before it makes anything there; as itself it has no right on what tenants own."),
        row("I6", "A token outlives its ServiceAccount and serves the next one of the name.",
            "Tokens are bound to the account's UID by the API server; one that is refused is asked for anew once, not in a loop."),
        row("I7", "Variables for debugging change who the hub is.",
            "The hub refuses to start while one of them is set."),
    ]},
    Family { letter: 'E', title: "A secret leaves by the hub's own words", rows: &[
        row("E1", "An error of a parser quotes the lines around it.",
            "Errors on these paths are closed lists of words with a place; a panic tells its place and not its text."),
        row("E2", "A credential is printed for debugging.",
            "Credentials are types that print nothing, and are dropped with the verdict on them."),
        row("E3", "What a registry or an API server answers comes back in a status or a log.",
            "Answers become words of a closed list; no foreign text is kept."),
        row("E4", "A container's logs or last words carry the credential.",
            "A last word is at most 1 KiB of a closed form, and anything else is dropped; the pusher logs no requests."),
        row("E5", "Annotations are copied along with a Secret, and with them an earlier content.",
            "Only the keys that are needed are copied; metadata never are."),
        row("E6", "Secrets stand in plain fields of custom resources.",
            "No field takes a credential, and no value that was read is written to a task."),
        row("E7", "Environment, arguments, core dumps or the memory of a process are read.",
            "Credentials are files; the hub and the renderer leave no core and cannot be traced."),
        row("E8", "A foreign string forges lines in the log, or a library logs headers.",
            "Logs are escaped, and libraries say nothing at any level."),
    ]},
    Family { letter: 'R', title: "A renderer is taken over", rows: &[
        row("R1", "Code in the container that reads a tenant's input looks for the credential.",
            "It is in another container, which opens the chart as a plain file and as bytes. A class in mode Single gives this up and says so."),
        row("R2", "A container gets out, or gets more rights.",
            "Pods pass Pod Security `restricted`, which the rendering namespace enforces at a fixed version."),
        row("R3", "A pod uses the Kubernetes API.",
            "It has no token, and its ServiceAccount has no right."),
        row("R4", "A pod reaches the API server, its neighbours, or a cloud's metadata service.",
            "A NetworkPolicy denies everything but DNS and registries. Names can still be asked of DNS."),
        row("R5", "A pod eats time, processes, memory or disk.",
            "Limits on each, a deadline on the Job, a quota on the namespace."),
        row("R6", "A stolen credential is used elsewhere.",
            "A token is asked for one repository, for push and pull; how far the credential itself reaches is the registry's to bound: give each ClusterRegistry one of its own."),
        row("R7", "A tenant looks into a pod: logs, exec, port-forward.",
            "No tenant has rights in the rendering namespace; the hub looks before it starts."),
    ]},
    Family { letter: 'H', title: "A cluster lies, or is taken over", rows: &[
        row("H1", "An answer, or a line of a watch, without end.",
            "8 MiB for an answer, 1 MiB for a line; then the connection is closed."),
        row("H2", "A connection is accepted and nothing is answered, or a byte a second.",
            "Every request has a deadline for all of it and one for silence."),
        row("H3", "`Retry-After: 86400`, or failures that have a write repeated.",
            "Only reads are repeated, a few times; no wait is longer than 60 seconds, and it is that cluster's alone."),
        row("H4", "A flood of events, or a watch that has expired again and again.",
            "Each cluster has its own line of events, in which equal ones are one; a watch is begun anew with growing pauses."),
        row("H5", "Forged UIDs, labels, names and counts, and objects that nobody asked for.",
            "What is told is filtered once more; a Job counts by the name and UID that it was made with, and its conditions decide."),
        row("H6", "A success without a push, or with another digest.",
            "Before a task that ran elsewhere succeeds, the hub asks the platform's registry for the manifest by its digest."),
        row("H7", "What is sent there is read.",
            "A cluster gets the tasks of namespaces and the credentials of registries that it lists, each in one Secret that goes with the task."),
        row("H8", "A cluster that was taken over reaches for the hub.",
            "It gets no identity of the hub and no address to call; what it says is never written with the hub's rights but as a word of a closed list."),
        row("H9", "A redirect leads the credential elsewhere; HTTP/2 frames exhaust the hub.",
            "Redirects are not followed; the frames, streams and headers of a connection are bounded, and a reset costs one request."),
        row("H10", "A clock that is off, nested answers, endless discovery.",
            "The hub's own clock counts, depth is bounded, and nothing is discovered."),
    ]},
    Family { letter: 'D', title: "A tenant takes the hub's time", rows: &[
        row("D1", "Tens of thousands of tasks come at once.",
            "Namespaces take turns, with a cap for each and one for all."),
        row("D2", "An object is written to a hundred times a second.",
            "Only what decides something wakes the hub, and it writes to one object at most once a second."),
        row("D3", "Jobs and Secrets pile up.",
            "They go with the result; what is left behind is swept; a quota bounds the rest."),
        row("D4", "One object makes the hub crash, again and again.",
            "A panic costs its task an error and a longer and longer wait, and nobody else anything."),
    ]},
    Family { letter: 'O', title: "A registry is hostile, or somebody on the way to it", rows: &[
        row("O1", "A challenge sends the credential to a token service elsewhere.",
            "A token service has the registry's origin, or is the one that the platform wrote; https, no redirects."),
        row("O2", "An upload is sent elsewhere.",
            "An upload location has the registry's origin, or the push fails."),
        row("O3", "A redirect takes the credential along.",
            "Redirects are never followed."),
        row("O4", "A download is pointed at an internal address.",
            "The pusher downloads nothing but the manifest it wrote, from the registry itself."),
        row("O5", "A tenant has the credential travel in clear text.",
            "The scheme is the platform's to write."),
        row("O6", "A registry lies about what it stores.",
            "The digest is computed from the bytes that were sent, and compared with what the registry then holds."),
    ]},
    Family { letter: 'X', title: "Input makes rendering do more than render", rows: &[
        row("X1", "Paths and links in an archive lead out of it.",
            "A chart is built in memory from a fixed set of plain files; the pusher takes no other archive."),
        row("X2", "Input breaks out of its place: newlines, delimiters, anchors, template actions.",
            "Objects are serialised, not pasted together; what comes out parses as what was meant."),
        row("X3", "Nested or huge input eats memory or time.",
            "Depth, bytes and counts are bounded before anything is built."),
        row("X4", "Input has the renderer fetch something.",
            "Rendering opens no connection; a URL in a configuration is text."),
    ]},
    Family { letter: 'M', title: "The platform makes a mistake", rows: &[
        row("M1", "Tenants have rights in the rendering namespace, or it is watched like a tenant's.",
            "The hub looks before it starts, names the mistake and the fix, and does not start."),
        row("M2", "The hub has more rights than it needs.",
            "The chart gives what is used; a hub that may do everything says so in a warning and a metric."),
        row("M3", "Pod Security, NetworkPolicy or quota are missing where the Jobs run.",
            "The hub does not start, unless the check is skipped by name."),
        row("M4", "A registry is open to every namespace and every repository.",
            "Both are explicit choices; the two together are warned of."),
        row("M5", "Two hubs share an id, or their namespaces overlap.",
            "Each keeps a Lease with what it serves; of two that overlap one works, an instance of the same hub stands by, and who is gone is buried before anything of his is taken."),
        row("M6", "A relaxed setting is forgotten.",
            "It shows in one line at the start, in a metric and in the chart's notes."),
        row("M7", "A restored backup brings tasks back with other UIDs.",
            "Old Jobs are orphans and are swept; the tasks run once more and take up nothing old."),
    ]},
    Family { letter: 'B', title: "Bounds: what one cluster or tenant can still do to the others", rows: &[
        row("B13", "The destination in a task's config Secret comes to point at somebody else's repository on the same registry.",
            "The pusher is told the registry's prefix for the namespace besides its host, by the pod's template, and refuses what is not within it, component by component, before it opens the credential."),
        row("B17", "Two reasons tell a tenant which ClusterRegistries exist that are not for it.",
            "RegistryNotAllowed is the answer for both, with the same message, the same requests and the same events."),
    ]},
];
