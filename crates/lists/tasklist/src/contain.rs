//! Tasks that run in containers: the image is an input of the task.

use crate::error::Error;
use crate::file::File;
use crate::line::Task;
use crate::made::container_files;
use eyas_terms::array::WATCH_VARIABLE;
use std::borrow::Cow;

/// An output that nobody wants. It is taken for none, so that any number of tasks may have it.
pub(crate) const NOWHERE: &str = "/dev/null";

/// Leaves out outputs that go nowhere.
pub(crate) fn drop_unwanted(task: &mut Task<'_>) {
    task.outputs.retain(|file| file.location != NOWHERE);
}

/// Puts the image of the task's container among its inputs; that is `default` if the task names none.
pub(crate) fn contain(task: &mut Task<'_>, default: Option<&str>) -> Result<(), Error> {
    let Some(image) = task.container.take().or_else(|| default.map(|image| Cow::Owned(image.to_owned())))
    else {
        return Ok(());
    };
    if task.dynamic {
        let why = "a task that adds tasks cannot run in a container, where it does not reach the dispatcher";
        return Err(Error::invalid(why).field("container").hint("leave out `container` or `dynamic`"));
    }
    if task.env.iter().any(|(name, _)| name == WATCH_VARIABLE) {
        let why = "a task in a container is not watched";
        return Err(Error::invalid(why)
            .field("container")
            .hint("leave out `container`, or `watch` and declare the files"));
    }
    let files = container_files(&image)?.into_iter();
    task.inputs.extend(files.map(|(name, at)| File { name: Some(name.into()), location: at.into() }));
    Ok(())
}
