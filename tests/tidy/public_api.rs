//! Compares the public items of `holdfast-lock` with the committed listing, so that no change of
//! its API goes unnoticed. Read from the sources with `syn`: `cargo public-api` needs the nightly
//! compiler's JSON of rustdoc. What is hidden in the docs is promised to nobody.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Visibility};

const LISTING: &str = "crates/holdfast-lock/PUBLIC-API.txt";

#[test]
fn public_api_of_the_lock_is_the_committed_one() {
    let mut api = Api::default();
    let sources = crate::root().join("crates/holdfast-lock/src");
    api.read(&sources.join("lib.rs"), &sources, "");
    let listed: String = api.lines().iter().map(|line| format!("{line}\n")).collect();
    assert!(listed.lines().count() > 150, "the sources were not read:\n{listed}");

    // Their crate's major versions would become the lock's.
    let of_redis = ["Cmd", "Pipeline", "ScriptInvocation", "FromRedisValue", "RedisError"];
    for line in listed.lines().filter(|line| !line.ends_with("[feature redis-api]")) {
        assert!(!of_redis.iter().any(|name| line.contains(name)), "without the feature: {line}");
    }

    let path = crate::root().join(LISTING);
    if std::env::var_os("HOLDFAST_UPDATE_API").is_some() {
        fs::write(&path, &listed).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let [old, new] = [&committed, &listed].map(|text| text.lines().collect::<BTreeSet<_>>());
    let removed = old.difference(&new).map(|line| format!("- {line}\n"));
    let added = new.difference(&old).map(|line| format!("+ {line}\n"));
    let changes: String = removed.chain(added).collect();
    assert!(
        committed == listed,
        "the public API has changed:\n{changes}If it shall, say so in its CHANGELOG, and run\n  \
         HOLDFAST_UPDATE_API=1 cargo test --test tidy public_api"
    );
}

/// The items of the sources: those that are `pub`, also in a private module that `lib.rs` exports.
#[derive(Default)]
struct Api {
    files: Vec<SourceFile>,
    /// The types and traits that are `pub`.
    types: BTreeSet<String>,
}

struct SourceFile {
    items: Vec<Item>,
    /// Its place in the crate, and the feature that it needs.
    module: String,
    feature: String,
}

impl Api {
    /// Reads a file, and the modules of which it says so, whose files are in `folder`.
    fn read(&mut self, path: &Path, folder: &Path, feature: &str) {
        let items = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap().items;
        for item in &items {
            if is_hidden(attributes_of(item)) {
                continue;
            }
            match item {
                Item::Struct(it) if is_public(&it.vis) => {
                    _ = self.types.insert(it.ident.to_string())
                }
                Item::Enum(it) if is_public(&it.vis) => _ = self.types.insert(it.ident.to_string()),
                Item::Trait(it) if is_public(&it.vis) => {
                    _ = self.types.insert(it.ident.to_string())
                }
                Item::Mod(it) if it.content.is_none() && !is_test(&it.attrs) => {
                    let name = it.ident.to_string();
                    let alone = folder.join(format!("{name}.rs"));
                    let inside = folder.join(&name);
                    let file = if alone.exists() { alone } else { inside.join("mod.rs") };
                    let own = feature_of(&it.attrs);
                    self.read(&file, &inside, if own.is_empty() { feature } else { &own });
                }
                _ => {}
            }
        }
        let module = module_of(path);
        self.files.push(SourceFile { items, module, feature: feature.to_owned() });
    }

    /// Returns a line for each item, sorted.
    fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        for SourceFile { items, module, feature } in &self.files {
            for item in items {
                for line in self.lines_of(item) {
                    lines.insert(format!("{module}: {line}{feature}"));
                }
            }
        }
        lines
    }

    fn lines_of(&self, item: &Item) -> Vec<String> {
        if is_hidden(attributes_of(item)) {
            return Vec::new();
        }
        match item {
            Item::Mod(it) if is_public(&it.vis) && !is_test(&it.attrs) => {
                let nested = it.content.iter().flat_map(|(_, items)| items);
                let nested = nested.flat_map(|item| self.lines_of(item));
                let nested = nested.map(|line| format!("mod {}: {line}", it.ident));
                [format!("pub mod {}", it.ident)].into_iter().chain(nested).collect()
            }
            Item::Use(it) if is_public(&it.vis) => vec![text(&without_attributes(it))],
            Item::Fn(it) if is_public(&it.vis) => vec![format!("pub {}", text(&it.sig))],
            Item::Type(it) if is_public(&it.vis) => vec![text(&without_attributes(it))],
            Item::Const(it) if is_public(&it.vis) => {
                vec![format!("pub const {}: {}", it.ident, text(&it.ty))]
            }
            Item::Struct(it) if is_public(&it.vis) => {
                let head = head("struct", &it.ident, &it.generics, &it.attrs);
                let fields =
                    it.fields.iter().filter(|it| is_public(&it.vis) && !is_hidden(&it.attrs));
                let fields = fields.map(|field| {
                    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    format!("{}.{name}: {}", it.ident, text(&field.ty))
                });
                [head].into_iter().chain(fields).collect()
            }
            Item::Enum(it) if is_public(&it.vis) => {
                let head = head("enum", &it.ident, &it.generics, &it.attrs);
                let variants = it.variants.iter().map(|variant| {
                    format!("{}::{}{}", it.ident, variant.ident, fields_text(&variant.fields))
                });
                [head].into_iter().chain(variants).collect()
            }
            Item::Trait(it) if is_public(&it.vis) => {
                let bounds = text(&it.supertraits);
                let methods = it.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(method) => {
                        let default =
                            if method.default.is_some() { " (has a default)" } else { "" };
                        Some(format!("trait {}: {}{default}", it.ident, text(&method.sig)))
                    }
                    _ => None,
                });
                [format!("pub trait {}: {bounds}", it.ident)].into_iter().chain(methods).collect()
            }
            Item::Impl(it) => self.lines_of_impl(it),
            _ => Vec::new(),
        }
    }

    fn lines_of_impl(&self, it: &syn::ItemImpl) -> Vec<String> {
        let of = text(&it.self_ty);
        let name = of.split('<').next().unwrap_or_default().trim();
        if !self.types.contains(name) {
            return Vec::new();
        }
        if let Some((_, of_trait, _)) = &it.trait_ {
            return vec![format!("impl {} for {of}", text(of_trait))];
        }
        let items = it.items.iter().filter_map(|item| match item {
            ImplItem::Fn(method) if is_public(&method.vis) && !is_hidden(&method.attrs) => {
                Some(format!("impl {of}: pub {}", text(&method.sig)))
            }
            ImplItem::Const(it) if is_public(&it.vis) => {
                Some(format!("impl {of}: pub const {}: {}", it.ident, text(&it.ty)))
            }
            _ => None,
        });
        items.collect()
    }
}

/// The first line of a type: with its derived traits, and whether it may grow.
fn head(kind: &str, name: &syn::Ident, generics: &syn::Generics, attrs: &[Attribute]) -> String {
    let mut line = format!("pub {kind} {name}{}", text(generics));
    for attribute in attrs {
        if attribute.path().is_ident("derive") || attribute.path().is_ident("non_exhaustive") {
            line.push_str(&format!(" {}", text(&attribute.meta)));
        }
    }
    line
}

fn fields_text(fields: &Fields) -> String {
    let each: Vec<String> = fields
        .iter()
        .map(|field| match &field.ident {
            Some(name) => format!("{name}: {}", text(&field.ty)),
            None => text(&field.ty),
        })
        .collect();
    match fields {
        Fields::Unit => String::new(),
        Fields::Named(_) => format!(" {{ {} }}", each.join(", ")),
        Fields::Unnamed(_) => format!("({})", each.join(", ")),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attribute| text(&attribute.meta) == "doc(hidden)")
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attribute| text(&attribute.meta) == "cfg(test)")
}

/// Returns ` [feature NAME]` if the item needs one.
fn feature_of(attrs: &[Attribute]) -> String {
    let conditions = attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let names = conditions.filter_map(|it| Some(text(&it.meta).split('"').nth(1)?.to_owned()));
    names.map(|name| format!(" [feature {name}]")).collect()
}

fn without_attributes<T: Clone + HasAttributes>(item: &T) -> T {
    let mut item = item.clone();
    item.attributes().clear();
    item
}

trait HasAttributes {
    fn attributes(&mut self) -> &mut Vec<Attribute>;
}

impl HasAttributes for syn::ItemUse {
    fn attributes(&mut self) -> &mut Vec<Attribute> {
        &mut self.attrs
    }
}

impl HasAttributes for syn::ItemType {
    fn attributes(&mut self) -> &mut Vec<Attribute> {
        &mut self.attrs
    }
}

/// The tokens as text, with the spaces of rustfmt in most places.
fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (" , ", ", "),
        (" ,", ","),
        (" : ", ": "),
        (" ;", ""),
        ("& ", "&"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("- >", "->"),
        ("->", " -> "),
        ("' ", "'"),
        ("# [", "#["),
        ("  ", " "),
    ] {
        text = text.replace(from, to);
    }
    text.replace("  ", " ").trim().to_owned()
}

/// The module of a file below `src`.
fn module_of(path: &Path) -> String {
    let sources: PathBuf = crate::root().join("crates/holdfast-lock/src");
    let path = path.strip_prefix(sources).unwrap().with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.join("::").as_str() {
        "lib" => "crate".to_owned(),
        module => module.trim_end_matches("::mod").to_owned(),
    }
}
