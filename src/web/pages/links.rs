//! Where the links of a page lead: to the shop's own addresses, or to the files of the site.
//!
//! A template names the address in the shop. On the site it becomes a relative one, so that the
//! folder works under any path and from the file system; a link to what the site does not have is
//! left out ([`Links::has`]). What only the shop has links to its own addresses directly.

use super::assets;
use holdfast_base::messages::Language;

/// The lessons that the site shows, as recorded runs.
pub const RECORDED_LESSONS: [&str; 3] = ["outlived", "wrong-delete", "fence"];

/// The navigation of the site, and the messages that name its pages.
pub const NAVIGATION: [(&str, &str); 5] = [
    ("/", "nav-race"),
    ("/lab/scheduler", "site-nav-scheduler"),
    (PROVE[0].0, "prove-title"),
    ("/lab/lessons", "site-nav-lessons"),
    ("/docs", "site-nav-docs"),
];

/// The room in which one chooses a lock and proves it: the question, the evidence and the exercise,
/// with the messages that name their tabs. One entry of the navigation leads to the first of them.
pub const PROVE: [(&str, &str); 3] = [
    ("/which-lock", "choose-title"),
    ("/lab/judged", "prove-judged"),
    ("/lab/course", "prove-course"),
];

#[derive(Debug, Clone)]
pub enum Links {
    /// To the shop that serves the page.
    Server,
    /// From a page of the site, which is this file of its language's edition.
    Static { file: String, language: Language },
}

impl Links {
    pub fn is_static(&self) -> bool {
        matches!(self, Self::Static { .. })
    }

    /// Returns whether a page of the shop can be reached.
    pub fn has(&self, address: &str) -> bool {
        !self.is_static() || file_of(address).is_some()
    }

    /// Returns where a link to a page of the shop leads.
    pub fn to(&self, address: &str) -> String {
        let Self::Static { file, .. } = self else { return address.to_owned() };
        up_from(file) + &file_of(address).unwrap_or_default()
    }

    /// Returns the address of a style sheet, script or picture.
    pub fn asset(&self, name: &str) -> String {
        match self {
            Self::Server => assets::address(name).to_owned(),
            Self::Static { .. } => format!("{}assets/{name}", self.root()),
        }
    }

    /// Returns the address of a font, whose name has its version: a style sheet names it, too.
    pub fn font(&self, name: &str) -> String {
        match self {
            Self::Server => format!("/static/{name}"),
            Self::Static { .. } => self.asset(name),
        }
    }

    /// Returns the element that loads a script.
    pub fn script(&self, name: &str) -> String {
        // A page from the file system cannot load a module.
        let kind = if self.is_static() { "defer" } else { "type=\"module\"" };
        format!("<script {kind} src=\"{}\"></script>", self.asset(name))
    }

    /// Returns where the page at a path of the shop is in another language.
    pub fn edition(&self, path: &str, other: Language) -> String {
        match self {
            Self::Server => {
                let next: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
                format!("/language/{}?next={next}", other.tag())
            }
            Self::Static { file, .. } => format!("{}{}{file}", self.root(), folder_of(other)),
        }
    }

    /// Returns what leads from this page to the root of the site.
    fn root(&self) -> String {
        match self {
            Self::Server => "/".to_owned(),
            Self::Static { file, language } => up_from(&format!("{}{file}", folder_of(*language))),
        }
    }
}

/// Returns the folder of a language's edition of the site.
pub fn folder_of(language: Language) -> &'static str {
    match language {
        Language::English => "",
        Language::Chinese => "zh/",
    }
}

/// Returns what leads from a file to the folder that its path begins in.
fn up_from(file: &str) -> String {
    "../".repeat(file.matches('/').count())
}

/// Returns the file of the site that shows what a page of the shop shows.
pub fn file_of(path: &str) -> Option<String> {
    let file = match path {
        "/" => "index.html",
        "/glossary" => "docs/glossary.html",
        "/which-lock" => "which-lock.html",
        "/lab/course" => "course.html",
        "/lab/judged" => "judged.html",
        "/lab/lessons" => "lessons.html",
        "/lab/scheduler" => "scheduler.html",
        "/docs" => "docs/index.html",
        _ => return file_below(path),
    };
    Some(file.to_owned())
}

fn file_below(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/')?;
    match folder {
        "/lab/judged" => Some(format!("judged/{name}.html")),
        "/docs" => Some(format!("docs/{name}.html")),
        "/lab/lessons" if RECORDED_LESSONS.contains(&name) => Some(format!("lessons/{name}.html")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(file: &str, language: Language) -> Links {
        Links::Static { file: file.to_owned(), language }
    }

    #[test]
    fn site_has_relative_links() {
        let english = links("docs/course.html", Language::English);
        let chinese = links("judged/flock.html", Language::Chinese);
        assert_eq!(english.to("/lab/judged/flock"), "../judged/flock.html");
        assert_eq!(english.asset("a.css"), "../assets/a.css");
        assert_eq!(english.edition("", Language::Chinese), "../zh/docs/course.html");
        assert_eq!(chinese.to("/"), "../index.html");
        assert_eq!(chinese.font("a.woff2"), "../../assets/a.woff2");
        assert_eq!(chinese.edition("", Language::English), "../../judged/flock.html");
        assert!(english.has("/lab/lessons/fence") && !english.has("/lab/lessons/hot-item"));
        assert!(!english.has("/lab") && Links::Server.has("/lab"));
    }

    #[test]
    fn shop_has_its_own_addresses() {
        assert_eq!(Links::Server.to("/lab/judged"), "/lab/judged");
        let edition = Links::Server.edition("/items/a b", Language::Chinese);
        assert_eq!(edition, "/language/zh?next=%2Fitems%2Fa+b");
    }
}
