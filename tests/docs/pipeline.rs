//! The picture of how a Release becomes a pod.

use super::picture::Picture;

#[test]
fn the_picture_of_the_pipeline_shows_its_tables() {
    let picture = Picture {
        page: "docs/concepts/pipeline.md",
        heading: "From a Release to a pod\n",
        file: "docs/concepts/pipeline.svg",
        bands: &["tenant", "hub", "Job", "registry", "target cluster"],
    };
    picture.shows_its_tables();
}
