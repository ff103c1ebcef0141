//! No cycles between the files of a crate: the graph of their imports.
//!
//! An edge goes from a file to the one that defines what it names, by `use` or by a path in the
//! code. A name that is re-exported leads to its definition. A re-export by itself is no import,
//! nor is `use` of a module before something of it is named. Inline test modules are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// The crates, with the least number of their files and of the imports between them.
const CRATES: [(&str, usize, usize); 8] = [
    ("src", 80, 100),
    ("crates/holdfast-base/src", 5, 0),
    ("crates/holdfast-story/src", 9, 10),
    ("crates/holdfast-shop/src", 60, 150),
    ("crates/holdfast-services/src", 15, 20),
    ("crates/holdfast-lab/src", 50, 100),
    ("crates/holdfast-judge/src", 15, 20),
    ("crates/holdfast-lock/src", 20, 60),
];
/// A file's path below `src`: `["engine", "queue"]`.
type Module = Vec<String>;

/// The graph: from each file those that it imports.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

#[derive(Default)]
struct File {
    /// Paths named in the code, as written.
    paths: Vec<Vec<String>>,
    /// The imports of `use`: the name here, and the path.
    uses: BTreeMap<String, Vec<String>>,
    exported: BTreeSet<String>,
    /// All words outside of `use`.
    words: BTreeSet<String>,
}

/// Comments and strings.
static IGNORED: LazyLock<Regex> = LazyLock::new(|| {
    let ignored = [
        r"//[^\n]*",
        r##"r#".*?"#"##,
        r#"r"[^"]*""#,
        r#""(?:[^"\\]|\\.)*""#,
        // A character, and not a lifetime.
        r"'(?:[^'\\]|\\.[^']*)'",
    ];
    Regex::new(&format!("(?s){}", ignored.join("|"))).unwrap()
});
static TOKEN: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"::|\w+|[^\s\w]").unwrap());

/// The text without comments, strings and inline tests, as words and signs; `::` is one sign.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let code = IGNORED.replace_all(text, " ");
    TOKEN.find_iter(&code).map(|found| found.as_str().to_owned()).collect()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads one `use` tree from `tokens`; returns what it brings in.
fn read_use(tokens: &mut std::slice::Iter<'_, String>, prefix: &[String]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut path = prefix.to_vec();
    let mut renamed = None;
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "::" => {}
            "{" => {
                all.extend(read_use(tokens, &path));
                path.clear();
            }
            "," | "}" | ";" => {
                if path.len() > prefix.len() {
                    // The name comes last, after the path: `a::b as c` is `a b c`.
                    let last: String = path.last().unwrap().clone();
                    let name = renamed.take().unwrap_or_else(|| {
                        if last == "self" { path[path.len() - 2].clone() } else { last.clone() }
                    });
                    if last == "self" && path.len() > 1 {
                        path.pop();
                    }
                    path.push(name);
                    all.push(path);
                }
                path = prefix.to_vec();
                if token != "," {
                    break;
                }
            }
            "as" => renamed = tokens.next().cloned(),
            word => path.push(word.to_owned()),
        }
    }
    all
}

fn read(text: &str) -> File {
    let tokens = tokens(text);
    let mut file = File::default();
    let mut rest = tokens.iter();
    let mut before: Vec<&str> = Vec::new();
    while let Some(token) = rest.next() {
        if token == "use" {
            let public = before.last() == Some(&"pub") || before.ends_with(&[")"]);
            for mut path in read_use(&mut rest, &[]) {
                let name = path.pop().unwrap();
                if public {
                    file.exported.insert(name.clone());
                }
                file.uses.insert(name, path);
            }
            before.clear();
            continue;
        }
        before.push(token);
        if !is_word(token) {
            continue;
        }
        if before.len() < 2 || before[before.len() - 2] != "mod" {
            file.words.insert(token.clone());
        }
        let mut path = vec![token.clone()];
        let mut ahead = rest.clone();
        while ahead.next().is_some_and(|next| next == "::")
            && let Some(next) = ahead.next().filter(|next| is_word(next))
        {
            path.push(next.clone());
            rest = ahead.clone();
        }
        if path.len() > 1 {
            file.paths.push(path);
        }
    }
    file
}

struct Tree(BTreeMap<Module, File>);

impl Tree {
    /// The path as written in `here`, from `src`; `None` if it leads out of the crate.
    fn absolute(&self, here: &Module, path: &[String]) -> Option<Vec<String>> {
        let (head, rest) = path.split_first()?;
        let mut from = match head.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => here.clone(),
            "super" => {
                let (_, above) = here.split_last()?;
                if rest.first().is_some_and(|next| next == "super") {
                    return self.absolute(&above.to_vec(), rest);
                }
                above.to_vec()
            }
            _ => {
                let mut child = here.clone();
                child.push(head.clone());
                self.0.contains_key(&child).then_some(child)?
            }
        };
        from.extend_from_slice(rest);
        Some(from)
    }

    /// The file that defines what an absolute path names; `None` if that is a module.
    fn defined_in(&self, path: &[String]) -> Option<Module> {
        let depth = (1..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth]))?;
        let (module, item) = (path[..depth].to_vec(), path.get(depth)?);
        let file = &self.0[&module];
        if let Some(target) = file.uses.get(item).filter(|_| file.exported.contains(item)) {
            let mut target = self.absolute(&module, target)?;
            target.extend_from_slice(&path[depth + 1..]);
            return self.defined_in(&target);
        }
        Some(module)
    }

    fn imports(&self, here: &Module, file: &File) -> BTreeSet<Module> {
        let mut found = BTreeSet::new();
        for (name, path) in &file.uses {
            if file.exported.contains(name) && !file.words.contains(name) {
                continue;
            }
            found.extend(self.absolute(here, path).and_then(|path| self.defined_in(&path)));
        }
        for path in &file.paths {
            let path = match file.uses.get(&path[0]) {
                Some(used) => [used, &path[1..]].concat(),
                None => path.clone(),
            };
            found.extend(self.absolute(here, &path).and_then(|path| self.defined_in(&path)));
        }
        found.remove(here);
        found
    }
}

/// The files that can be reached from `from`, by at least one import.
fn reachable(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        for import in graph.get(module).into_iter().flatten() {
            if seen.insert(import.clone()) {
                next.push(import);
            }
        }
    }
    seen
}

fn graph(files: impl IntoIterator<Item = (Module, String)>) -> Graph {
    let tree = Tree(files.into_iter().map(|(module, text)| (module, read(&text))).collect());
    tree.0.iter().map(|(module, file)| (module.clone(), tree.imports(module, file))).collect()
}

fn in_cycles(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (from, imports) in graph {
        for to in imports.iter().filter(|to| reachable(graph, to).contains(from)) {
            found.push(format!("{} -> {}", name(from), name(to)));
        }
    }
    found
}

fn name(module: &Module) -> String {
    module.join("/")
}

/// The module of a file below `src`; that of `lib.rs` is empty.
fn path_of(path: &Path, src: &Path) -> Module {
    let inside = path.strip_prefix(src).unwrap().with_extension("");
    let mut module: Module = inside.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

#[test]
fn files_have_no_import_cycles() {
    for (folder, least_files, least_imports) in CRATES {
        let src = super::root().join(folder);
        let files = super::rust_files(&src);
        let graph = graph(files.iter().map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            (path_of(path, &src), text)
        }));

        let imports: usize = graph.values().map(BTreeSet::len).sum();
        let found = format!("{} files, {imports} imports in {folder}", graph.len());
        assert!(graph.len() >= least_files && imports >= least_imports, "{found}");

        let cycles = in_cycles(&graph);
        assert!(cycles.is_empty(), "cycles in {folder}:\n{}", cycles.join("\n"));
    }
}
