//! The style of an element: its attributes, and the picture's style sheet.

use roxmltree::{Document, Node};

/// A declaration of a style sheet, with the selector of its elements.
struct Rule<'a> {
    selector: &'a str,
    property: &'a str,
    value: &'a str,
}

pub struct Styles<'a> {
    rules: Vec<Rule<'a>>,
}

impl<'a> Styles<'a> {
    pub fn new(document: &'a Document) -> Styles<'a> {
        let mut sheets = document.descendants();
        let sheet = sheets.find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "style")));
        let sheet = sheet.and_then(|node| node.text()).unwrap_or("");
        let mut rules = Vec::new();
        for rule in sheet.split('}') {
            let Some((selector, declarations)) = rule.split_once('{') else {
                continue;
            };
            for declaration in declarations.split(';') {
                if let Some((property, value)) = declaration.split_once(':') {
                    rules.push(Rule {
                        selector: selector.trim(),
                        property: property.trim(),
                        value: value.trim(),
                    });
                }
            }
        }
        Styles { rules }
    }

    /// A property by the last rule for the element's name, id or class, else by its attribute. Other selectors depend
    /// on a pointer, and are ignored.
    pub fn property<'n>(&'n self, node: Node<'n, 'n>, name: &str) -> Option<&'n str> {
        let selects = |selector: &str| match selector.split_at_checked(1) {
            Some(("#", id)) => node.attribute("id") == Some(id),
            Some((".", class)) => node.attribute("class") == Some(class),
            _ => node.tag_name().name() == selector,
        };
        let mut rules = self.rules.iter().rev();
        let rule = rules.find(|rule| rule.property == name && selects(rule.selector));
        rule.map(|rule| rule.value).or(node.attribute(name))
    }
}

pub fn number(text: &str) -> Option<f32> {
    let number = text.trim_end_matches("px").parse::<f32>().ok()?;
    number.is_finite().then_some(number)
}

/// The colour of `#rrggbb` and `rgb(r,g,b)`; anything else has none.
pub fn color(text: &str) -> Option<[u8; 3]> {
    if let Some(digits) = text.strip_prefix('#') {
        let value = u32::from_str_radix(digits, 16).ok()?;
        let [_, color @ ..] = value.to_be_bytes();
        return Some(color);
    }
    let parts = text.strip_prefix("rgb(")?.strip_suffix(')')?;
    let mut parts = parts.split(',').map(|part| part.trim().parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}
